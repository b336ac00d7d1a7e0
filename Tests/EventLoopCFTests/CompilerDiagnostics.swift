// What the compiler says about a file that imports the package. DocumentationTests has a link to this file.

#if os(Linux)

import Foundation
import Testing

/// Empty if the file compiles. The file is one that SwiftPM calls `main.swift`: it may have top-level code.
func diagnostics(of source: String) throws -> String {
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent("eventloop-diagnostics-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let file = folder.appendingPathComponent("main.swift")
    try source.write(to: file, atomically: true, encoding: .utf8)

    let built = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
    let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../..").standardizedFileURL
    let headers = ["CPlatform/include", "CStreams/include", "CLibevent", "CLibeventOpenSSL"]
    let folders = headers.map { root.appendingPathComponent("Sources/\($0)").path }
    let compiler = Process()
    compiler.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    compiler.arguments =
        ["swiftc", "-swift-version", "6", "-typecheck", file.path]
        + ["-module-cache-path", built.appendingPathComponent("ModuleCache").path]
        + ([built.appendingPathComponent("Modules").path] + folders).flatMap { ["-I", $0] }
    let output = Foundation.Pipe()
    compiler.standardOutput = output
    compiler.standardError = output
    try compiler.run()
    let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    compiler.waitUntilExit()
    try #require((compiler.terminationStatus == 0) == !text.contains("error:"), "\(text)")
    return compiler.terminationStatus == 0 ? "" : text
}

#endif
