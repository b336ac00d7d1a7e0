// Rules proved here, which the compiler does not check:
// - A file uses types and members of its own layer and of the layers below, not of those above (docs/architecture.md).
// - Only files in Libevent/ import CLibevent. No file of the library imports Foundation or Dispatch.
// - The modules of streams import EventLoop, their C target and the standard library only.
// - One library imports Foundation, one imports Swift Testing, and one imports XCTest.
// - Steps.swift has the ten steps, once each and in order, without `#if` and without locks.
// - Every claim of safety that the compiler does not check has its reason beside it.
// - No file of these modules has more than 400 lines.
//
// Rules of the check of the layers, on small made-up trees:
// - It reports an upward use.
// - It reports nothing else.

import Foundation
import Testing

/// From the lowest level up. Folders of the same level may not use each other.
private let levels = [
    ["Base"], ["Libevent"], ["Poller"], ["Items"], ["Mode"], ["Loop"], ["Sockets", "Signals", "Ports"], ["Processes", "CivilTime"],
    ["Concurrency"],
    ["Threads"],
]

/// The same for the module of streams.
private let levelsOfStreams = [["Transport"], ["Bytes"], ["Stream"], ["Framing"], ["Connecting"], ["Server"]]

/// What the modules beside the core may import.
private let standardModules: Set<String> = ["Synchronization", "EventLoopLibC"]
private let importsOfModules: [(module: String, imports: Set<String>)] = [
    ("EventLoopMessagePorts", ["EventLoop", "CPlatform"]), ("EventLoopObserving", ["EventLoop", "CPlatform", "CStacks"]),
    ("EventLoopSupervisor", ["EventLoop", "CPlatform"]),
    ("EventLoopStreams", ["EventLoop", "CPlatform", "CStreams"]), ("EventLoopTLS", ["EventLoop", "EventLoopStreams", "COpenSSL"]),
    ("EventLoopDatagrams", ["EventLoop", "EventLoopStreams", "CDatagrams", "CPlatform"]),
    ("EventLoopHTTP", ["CPlatform", "EventLoop", "EventLoopStreams", "HTTPTypes"]),
    ("EventLoopCF", ["CPlatform", "EventLoop"]),
    (
        "EventLoopSimulation",
        ["CPlatform", "CSimulation", "CStacks", "EventLoop", "EventLoopObserving", "EventLoopStreams", "Testing", "_Concurrency"]
    ),
    ("EventLoopNIO", ["CHostPasses", "CPlatform", "EventLoop", "Glibc", "NIOCore", "NIOPosix"]),
    ("EventLoopMetrics", ["CPlatform", "CoreMetrics", "EventLoop"]), ("EventLoopLogging", ["EventLoop", "EventLoopObserving", "Logging"]),
    ("EventLoopServiceLifecycle", ["EventLoop", "EventLoopHTTP", "EventLoopStreams", "EventLoopSupervisor", "ServiceLifecycle"]),
]

/// Every layer may name `RunLoop`: memberships refer to their loop, and closures receive it. Layers below Loop may not use its members.
private let layering = Layering(
    levels, forwardTypes: ["RunLoop"], receivers: ["loop": "RunLoop"], standardMembers: standardMembers)

/// As above: every layer may name the stream. Types of EventLoop and the standard library have members of these names, too.
private let layeringOfStreams = Layering(
    levelsOfStreams, forwardTypes: ["ByteStream", "RunLoop"],
    standardMembers: standardMembers.union(["duration", "loopEnded", "system", "withLock", "withUnsafeBytes"]))

/// Members of the standard library's types. If the type of a receiver is unknown, a use of one of these is not reported.
private let standardMembers: Set<String> = [
    // Atomic
    "add", "bitwiseOr", "compareExchange", "exchange", "load", "store", "subtract", "weakCompareExchange", "wrappingAdd",
    // sequences, collections and their elements
    "append", "contains", "count", "element", "filter", "first", "insert", "isEmpty", "joined", "key", "keys", "last", "map", "offset",
    "remove", "removeAll", "sort", "sorted", "union", "value", "values",
    // pointers and memory
    "allocate", "deallocate", "deinitialize", "initialize", "move", "pointee", "release", "retain", "size",
    // optionals, results, continuations, tasks
    "cancel", "failure", "get", "resume", "success", "take",
]

/// A use that the check takes for an upward one, although the name means something else there.
private struct NameException {
    let name: String
    /// The beginning of the paths of the files to which the exception applies.
    let prefix: String
    let reason: String

    func covers(_ use: UpwardUse) -> Bool { use.name == name && use.file.hasPrefix(prefix) }
}

private let exceptions = [
    NameException(name: "contains", prefix: "Items/Observer.swift", reason: "of OptionSet")
]

private let exceptionsOfStreams = [
    NameException(name: "closed", prefix: "Transport/PeerWatch.swift", reason: "of DescriptorSource.Events"),
    NameException(name: "now", prefix: "Transport/PeerWatch.swift", reason: "of a clock"),
]

/// Reports the uses that no exception covers, and the exceptions that cover none.
private func report(_ uses: [UpwardUse], except exceptions: [NameException]) {
    for use in uses where !exceptions.contains(where: { $0.covers(use) }) { Issue.record("\(use), which is above it") }
    for exception in exceptions where !uses.contains(where: exception.covers) {
        Issue.record("the exception for \(exception.name) is not needed any more; remove it")
    }
}

private struct SourceFile {
    let layer: String
    let name: String
    let lines: [Substring]
    let layered: LayeredFile

    init(layer: String, name: String, text: String) {
        self.layer = layer
        self.name = name
        lines = text.utf8.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map { Substring($0) }
        layered = LayeredFile(folder: layer, name: name, text: text)
    }

    /// The modules that the file imports.
    var imports: [String] { importedModules(layered.source.tokens) }
}

/// `internal import CPlatform`, `import struct Foundation.Date`.
private func importedModules(_ tokens: [Token]) -> [String] {
    tokens.indices.filter { tokens[$0].text == "import" }.compactMap { position in
        tokens[(position + 1)...].first { !["struct", "class", "enum", "protocol", "typealias", "func", "var", "let"].contains($0.text) }?
            .text
    }
}

/// Read and parsed once for all tests.
private let filesOfModules = Result {
    try Dictionary(uniqueKeysWithValues: (["EventLoop"] + importsOfModules.map(\.module)).map { ($0, try readModule($0)) })
}

private func libraryFiles(_ module: String = "EventLoop") throws -> [SourceFile] { try filesOfModules.get()[module] ?? [] }

/// Of the core, and of the modules beside it.
private func allFiles() throws -> [SourceFile] { try filesOfModules.get().values.flatMap { $0 } }

private func readModule(_ module: String) throws -> [SourceFile] {
    let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appendingPathComponent("../../../Sources/\(module)").standardizedFileURL
    // A layer may have folders of its own.
    return try FileManager.default.subpathsOfDirectory(atPath: root.path).filter { $0.hasSuffix(".swift") }.sorted().map { path in
        let parts = path.split(separator: "/")
        return SourceFile(
            layer: String(parts[0]), name: String(parts.last!),  // a path has a part
            text: try String(contentsOf: root.appendingPathComponent(path), encoding: .utf8))
    }
}

@Suite struct LayerTests {
    @Test func `a file uses only types and members of its own layer and of the layers below`() throws {
        let files = try libraryFiles()
        #expect(files.count > 40)
        #expect(Set(files.map(\.layer)) == Set(levels.flatMap { $0 }), "the folders of the library must be those of `levels`")
        report(layering.upwardUses(in: files.map(\.layered)), except: exceptions)
    }

    @Test func `a file of the module of streams uses only its own layer and the layers below`() throws {
        let files = try libraryFiles("EventLoopStreams")
        #expect(Set(files.map(\.layer)) == Set(levelsOfStreams.flatMap { $0 }), "the folders must be those of `levelsOfStreams`")
        report(layeringOfStreams.upwardUses(in: files.map(\.layered)), except: exceptionsOfStreams)
    }

    @Test(arguments: importsOfModules.map(\.module))
    func `a module beside the core imports only what it may`(module: String) throws {
        let allowed = try #require(importsOfModules.first { $0.module == module }).imports.union(standardModules)
        let files = try libraryFiles(module)
        #expect(!files.isEmpty)
        for file in files {
            for name in file.imports where !allowed.contains(name) { Issue.record("\(module)/\(file.name) imports \(name)") }
        }
    }

    @Test func `only files in Libevent import libevent, and no file imports Foundation or Dispatch`() throws {
        for file in try libraryFiles() {
            let imports = file.imports
            #expect(file.layer == "Libevent" || !imports.contains("CLibevent"), "\(file.name)")
            #expect(!imports.contains { $0.hasPrefix("Foundation") || $0.hasPrefix("Dispatch") }, "\(file.name)")
        }
    }

    @Test(arguments: [
        ("Foundation", "EventLoopFoundation"), ("Testing", "EventLoopTesting"), ("XCTest", "EventLoopXCTest"),
    ])
    func `only one library imports a module that not every user wants to link`(module: String, library: String) throws {
        let sources = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../../../Sources").standardizedFileURL
        // Paths inside `Sources`: the folders above it may have any name. Programs measure Foundation's run loop; nobody links them.
        let files = try #require(FileManager.default.subpaths(atPath: sources.path))
            .filter { !$0.hasPrefix("eventloop-") && $0.hasSuffix(".swift") }
        #expect(files.count > 40)
        let importing = try files.filter { file in
            let text = try String(contentsOf: sources.appendingPathComponent(file), encoding: .utf8)
            let imports = text.split(separator: "\n").filter { $0.contains("import ") }.flatMap {
                importedModules(Lexer.tokens(of: String($0)))
            }
            return imports.contains { $0.hasPrefix(module) }
        }
        // Linked by test targets only, and its trait is one of Swift Testing.
        let forTestTargets: Set<Substring> = ["EventLoopSimulation"]
        #expect(Set(importing.map { $0.split(separator: "/")[0] }).subtracting(forTestTargets) == [Substring(library)])
    }

    @Test func `one file has the ten steps, in order`() throws {
        let file = try #require(try libraryFiles().first { $0.name == "Steps.swift" })
        let numbers = file.lines.compactMap { line in line.firstMatch(of: /\/\/ (\d+)$/).flatMap { Int($0.1) } }
        #expect(numbers == [1, 10, 2, 3, 4, 5, 6, 7, 8, 9])
        #expect(!file.lines.contains { $0.contains("#if") || $0.contains("withLock") })
        #expect(file.lines.count <= 70)
    }

    @Test func `every claim of safety that the compiler does not check has a reason`() throws {
        for file in try allFiles() {
            for (index, line) in file.lines.enumerated() where line.contains("@unchecked Sendable") || line.contains("nonisolated(unsafe)")
            {
                let around = file.lines[max(0, index - 4)...min(index + 2, file.lines.count - 1)]
                #expect(around.contains { $0.contains("SAFETY") }, "\(file.name):\(index + 1)")
            }
        }
    }

    @Test func `no file has more than 400 lines`() throws {
        for file in try allFiles() { #expect(file.lines.count <= 400, "\(file.name) has \(file.lines.count)") }
    }
}

/// A made-up library of three levels, `Low`, `Left` and `Right` side by side, and `High`.
private struct SeededTree: CustomTestStringConvertible {
    let testDescription: String
    let low: String
    var left = ""
    var right = ""
    let high: String

    var upwardUses: [String] {
        let layering = Layering(
            [["Low"], ["Left", "Right"], ["High"]], forwardTypes: ["RunLoop"], receivers: ["loop": "RunLoop"],
            standardMembers: ["add", "load"])
        let files = [("Low", low), ("Left", left), ("Right", right), ("High", high)].map {
            LayeredFile(folder: $0.0, name: "File.swift", text: $0.1)
        }
        return layering.upwardUses(in: files).map { "\($0.file):\($0.line) \($0.name)" }
    }
}

private let treesWithAnUpwardUse: [(tree: SeededTree, use: String)] = [
    (
        SeededTree(
            testDescription: "a call of a loop's member, though a lower type has one of that name",
            low: """
                struct Bag { func add(_ x: Int) {} }
                final class Member { func join(_ loop: RunLoop) {
                    loop.add(1) } }
                """, high: "public final class RunLoop { func add(_ x: Int) {} }"), "Low/File.swift:3 add"
    ),
    (
        SeededTree(
            testDescription: "a call of an extension of its own type", low: "class Source { func serve() { watchDidChange() } }",
            high: "extension Source { func watchDidChange() {} }"), "Low/File.swift:1 watchDidChange"
    ),
    (
        SeededTree(
            testDescription: "a call on self", low: "class Source { func serve() { self.watchDidChange() } }",
            high: "extension RunLoop.Source { func watchDidChange() {} }"), "Low/File.swift:1 watchDidChange"
    ),
    (
        SeededTree(
            testDescription: "a call of an extension of what its type inherits from",
            low: "class Source {}\nfinal class Port: Source { func end() { invalidate() } }\nstruct Count { func invalidate() {} }",
            high: "extension Source { func invalidate() {} }"), "Low/File.swift:2 invalidate"
    ),
    (
        SeededTree(
            testDescription: "a call on a receiver that is named for its type",
            low: "class Source {}\nfunc f(_ source: Source?) { source?.invalidate() }",
            high: "extension Source { func invalidate() {} }"), "Low/File.swift:2 invalidate"
    ),
    (
        SeededTree(
            testDescription: "a property of a receiver that could be anything", low: "func f(_ x: [RunLoop]) -> Int { x[0].speed }",
            high: "extension RunLoop { var speed: Int { 1 } }"), "Low/File.swift:1 speed"
    ),
    (
        SeededTree(
            testDescription: "a static member", low: "let now = RunLoop.current",
            high: "class RunLoop { static var current: RunLoop { RunLoop() } }"),
        "Low/File.swift:1 current"
    ),
    (
        SeededTree(
            testDescription: "a case of an enumeration", low: "func f(_ x: Any) -> Bool { x == .late }",
            high: "enum Lateness { case early, late(by: Int) }"),
        "Low/File.swift:1 late"
    ),
    (
        SeededTree(testDescription: "a type", low: "var slot: Keeper?", high: "struct Keeper {}"), "Low/File.swift:1 Keeper"
    ),
    (
        SeededTree(
            testDescription: "a type in an extension of RunLoop", low: "var slot: RunLoop.Keeper?",
            high: "extension RunLoop { struct Keeper {} }"),
        "Low/File.swift:1 Keeper"
    ),
    (
        SeededTree(testDescription: "a global function", low: "func f() { say() }", high: "func say() {}"), "Low/File.swift:1 say"
    ),
    (
        SeededTree(
            testDescription: "a use inside a string", low: #"func f(_ x: Any) -> String { "so \(x.speed) much" }"#,
            high: "struct Train { let speed = 1 }"), "Low/File.swift:1 speed"
    ),
    (
        SeededTree(
            testDescription: "a folder of the same level", low: "", left: "func f(_ x: Any) { x.depart() }",
            right: "struct Train { func depart() {} }", high: ""),
        "Left/File.swift:1 depart"
    ),
]

private let treesWithout: [SeededTree] = [
    SeededTree(
        testDescription: "downward uses", low: "struct Bag { func add() {} }", left: "func f(_ bag: Bag) { bag.add() }",
        high: "func g(_ bag: Bag) { f(bag) }"),
    SeededTree(
        testDescription: "a name of the forward type, and what it is in the lower folder",
        low: "struct Member { let loop: RunLoop }\nextension RunLoop { struct Instant {} }\nlet x: RunLoop.Instant? = nil",
        high: "class RunLoop { func perform() {} }"),
    SeededTree(
        testDescription: "comments and literals", low: "// x.speed()\n/* x.speed() */\nlet a = \"x.speed()\"",
        high: "struct Train { func speed() {} }"),
    SeededTree(
        testDescription: "local names, parameters and labels",
        low: """
            struct Bag { func f(speed: Int) -> Int { let weight = speed; return weight }
                func g() { f(speed: 1); [1].forEach { length in print(length) } } }
            """, high: "extension Bag { var speed: Int { 1 }; var weight: Int { 1 }; var length: Int { 1 } }"),
    SeededTree(
        testDescription: "a private member of a type above", low: "func f(_ x: Any) { x.speed() }",
        high: "struct Train { private func speed() {} }"),
    SeededTree(
        testDescription: "a member of a private type above", low: "func f(_ x: Any) { x.speed() }",
        high: "private struct Train { func speed() {} }"),
    SeededTree(
        testDescription: "a private member of its own", low: "struct Train { private let speed = 1; func f() -> Int { speed } }",
        high: "extension Train { var speed: Int { 2 } }"),
    SeededTree(
        testDescription: "a name that both declare, on a receiver that could be anything",
        low: "struct Bag { func add() {} }\nfunc f(_ x: Any) { x.add() }",
        high: "class RunLoop { func add() {} }"),
    SeededTree(
        testDescription: "a pattern", low: "enum Light { case red }\nfunc f(_ light: Light) { switch light { case .red: break } }",
        high: "enum Rose { case red }"),
]

@Suite struct LayeringTests {
    @Test(arguments: treesWithAnUpwardUse)
    private func `the check reports an upward use`(seeded: (tree: SeededTree, use: String)) {
        #expect(seeded.tree.upwardUses == [seeded.use])
    }

    @Test(arguments: treesWithout)
    private func `the check reports nothing else`(tree: SeededTree) {
        #expect(tree.upwardUses == [])
    }
}
