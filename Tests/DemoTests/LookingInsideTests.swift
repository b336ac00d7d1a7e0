// The routes by which a client looks into the server's loops: recordings, and the stalls that the watchdog finds.

#if os(Linux)

import EventLoopTestSupport
import Testing

@Suite(.bounded) struct LookingInsideTests {
    @Test func `a blocked loop is reported while it is, with the line, on the page and on the terminal`() throws {
        let server = try PortDirectoryOfTest().serve("--loops", "1")
        let client = try server.connect()
        // Much longer than the watchdog's quarter of a second, for a busy machine.
        try client.get("/stall?ms=3000")
        // The main loop answers nothing here, but it prints.
        let line = try #require(try firstLine(of: server.process, beginning: "stall: "))
        #expect(line.hasPrefix("stall: http-0 has been in timer \"a planted stall\" from eventloop_demo/HTTPHost+Routes.swift:"), "\(line)")
        let json = try server.get("/status.json")
        #expect(json.contains("\"stallCount\":1,") && json.contains("\"label\":\"a planted stall\""), "\(json)")
        // What is in it depends on where the thread was; `WatchdogProcessTests` look at backtraces.
        #expect(json.contains("\"backtrace\":["))
        #expect(json.contains("\"slowest\":[{\"kind\":\"timer\",\"label\":\"a planted stall\""))
    }

    private func firstLine(of process: DemoProcess, beginning start: String) throws -> String? {
        while let line = try process.line() {  // ends: with the line, or with the process
            if line.hasPrefix(start) { return line }
        }
        return nil
    }

    @Test func `a recording of all loops is answered as a page, and as a trace`() throws {
        let server = try PortDirectoryOfTest().serve("--loops", "2")
        let page = try server.get("/timeline?ms=20")
        #expect(page.hasPrefix("HTTP/1.1 200 ") && page.contains("Content-Type: text/html"))
        #expect(page.contains("Content-Security-Policy: default-src 'none'") && page.contains("http-1"))
        let trace = try server.get("/trace.json?ms=20")
        #expect(trace.contains("Content-Type: application/json") && trace.contains("\"name\":\"http-1\""))
    }

    @Test func `a second recording at the same time is refused`() throws {
        let server = try PortDirectoryOfTest().serve("--loops", "1")
        let client = try server.connect()
        try client.get("/timeline?ms=10000")
        try server.waitUntilRead(1)
        #expect(try server.get("/trace.json?ms=20").hasPrefix("HTTP/1.1 503 "))
    }

    @Test(arguments: ["/timeline?ms=0", "/timeline?ms=10001", "/trace.json?ms=x", "/stall?ms=5001", "/stall?ms=-1"])
    func `a wrong time is refused`(path: String) throws {
        let server = try PortDirectoryOfTest().serve("--loops", "1")
        #expect(try server.get(path).hasPrefix("HTTP/1.1 400 "))
    }
}

#endif
