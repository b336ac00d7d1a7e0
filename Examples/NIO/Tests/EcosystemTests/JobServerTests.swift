// The program hummingbird-jobs (docs/from-nio.md), with a Redis server of the test's own: requests, jobs that a C library brings, and SIGTERM.

import Glibc
import TestSupport
import Testing

@Suite(.bounded) struct JobServerTests {
    @Test func `a job that is posted is taken from Redis, and SIGTERM ends the process`() throws {
        let redis = try RedisServer()
        let folder = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(folder) }
        let (program, socket) = (try builtProgramPath("hummingbird-jobs"), folder + "/http")
        let child = Child("/bin/sh", ["-c", "exec '\(program)' '\(socket)' '\(redis.socketPath)' </dev/null >'\(folder)/output' 2>&1"])
        #expect(try request("GET / HTTP/1.1", at: socket).hasSuffix("0 done: \n"))
        for name in ["resize", "mail", "report"] {
            #expect(try request("POST /jobs/\(name) HTTP/1.1", at: socket).hasPrefix("HTTP/1.1 202"))
        }
        try waitUntil("the jobs are done") {
            try request("GET / HTTP/1.1", at: socket).hasSuffix("3 done: resize, mail, report\n")
        }
        child.kill(SIGTERM)
        #expect(waitForEnd(of: child.pid) == 0)
        let text = try String(decoding: contents(of: folder + "/output"), as: UTF8.self)
        #expect(text.hasSuffix("ended\n"), "\(text)")
    }
}

/// One request over a connection of its own.
private func request(_ line: String, at path: String, _ location: SourceLocation = #_sourceLocation) throws -> String {
    let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(descriptor) }
    try waitUntil("the program listens", location) { withUnixAddress(path) { connect(descriptor, $0, $1) == 0 } }
    let text = "\(line)\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    try #require(send(descriptor, text, text.utf8.count, Int32(MSG_NOSIGNAL)) == text.utf8.count, sourceLocation: location)
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 4_096)
    while true {  // ends: with the connection
        try waitUntilReadable(descriptor, "an answer", location)
        let count = recv(descriptor, &buffer, buffer.count, 0)
        if count <= 0 { break }
        bytes += buffer[..<count]
    }
    return String(decoding: bytes, as: UTF8.self)
}

private func contents(of file: String) throws -> [UInt8] {
    let descriptor = open(file, O_RDONLY)
    try #require(descriptor >= 0)
    defer { close(descriptor) }
    return Array(drain(descriptor).utf8)
}
