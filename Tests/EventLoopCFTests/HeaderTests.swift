// Rule proved here: every function and constant of the toolchain's CFRunLoop.h and CFSocket.h is declared in this module, and is on its page.

#if os(Linux)

import Foundation
import Testing

@Suite struct HeaderTests {
    @Test(arguments: [("CFRunLoop.h", 50), ("CFSocket.h", 30)])
    func `every function and constant of the C header is declared and documented`(header: String, atLeast count: Int) throws {
        let names = try exportedNames(of: header)
        #expect(names.count >= count)
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../..").standardizedFileURL
        let page = try String(contentsOf: root.appendingPathComponent("docs/corefoundation.md"), encoding: .utf8)
        let module = root.appendingPathComponent("Sources/EventLoopCF")
        let code = try FileManager.default.contentsOfDirectory(atPath: module.path).filter { $0.hasSuffix(".swift") }
            .map { try String(contentsOf: module.appendingPathComponent($0), encoding: .utf8) }.joined()
        for name in names {
            #expect(code.contains("public func \(name)(") || code.contains("public let \(name):"), "\(name) is not declared")
            #expect(page.contains("`\(name)`") || page.contains("`\(name)("), "\(name) is not on the page")
        }
    }

    /// What the header of the toolchain's Core Foundation declares with CF_EXPORT.
    private func exportedNames(of header: String) throws -> [String] {
        let compiler = Process()
        compiler.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        compiler.arguments = ["swiftc", "-print-target-info"]
        let output = Foundation.Pipe()
        compiler.standardOutput = output
        try compiler.run()
        let info = output.fileHandleForReading.readDataToEndOfFile()
        compiler.waitUntilExit()
        let paths = try #require(try JSONSerialization.jsonObject(with: info) as? [String: Any])["paths"] as? [String: Any]
        let resources = try #require(paths?["runtimeResourcePath"] as? String)
        let text = try String(contentsOfFile: "\(resources)/CoreFoundation/\(header)", encoding: .utf8)
        return text.split(separator: "\n").filter { $0.hasPrefix("CF_EXPORT") }.compactMap {
            $0.firstMatch(of: /\b(k?CF\w+)\s*(\(|;)/).map { String($0.1) }
        }
    }
}

#endif
