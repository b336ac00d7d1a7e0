// The pages of the server.

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Testing

@Suite(.bounded) struct StatusTests {
    @Test func `the JSON has every loop, and counts the request that asks`() throws {
        let server = try PortDirectoryOfTest().serve("--loops", "2")
        let json = try server.get("/status.json")
        #expect(json.contains("Content-Type: application/json"))
        for part in [
            "\"name\":\"main\"", "\"name\":\"http-0\"", "\"name\":\"http-1\"", "\"state\":\"serving\"", "\"modes\":[\"default\"]",
            "\"name\":\"\(server.name)\"", "message port",
        ] {
            #expect(json.contains(part), "\(part) in \(json)")
        }
        #expect(try server.sum("requests") == 2)
        #expect(try server.sum("inProgress") == 1)
    }

    @Test func `a label is text, whatever is in it`() throws {
        let server = try PortDirectoryOfTest().serve()
        let client = try server.connect()
        // </script><b>"&' with a line break, a NUL-like escape, a mark that turns the text around, and bytes that are no UTF-8.
        try client.get("/slow?ms=60000&label=%3C/script%3E%3Cb%3E%22%26%27%0A%5C%E2%80%AE%FFx")
        try server.waitUntilRead(1)
        let answer = try server.get("/status.json")
        let json = try #require(answer.split(separator: "\r\n\r\n").dropFirst().first)
        #expect(json.contains(#"slow request: \u003c/script\u003e\u003cb\u003e\"\u0026\u0027 \\\u202e"#), "\(json)")
        #expect(!json.contains("<") && !json.contains(">") && !json.contains("\u{202E}"))
        #expect(json.dropLast().allSatisfy { !$0.isNewline })
    }

    @Test func `the page contains everything it needs, and nothing of the server's`() throws {
        let ports = PortDirectoryOfTest()
        let server = try ports.serve("--name", "<b>name")
        let page = try server.get("/status")
        #expect(page.contains("Content-Security-Policy: default-src 'none'"))
        #expect(!page.contains("<b>name") && !page.contains("src=") && !page.contains("innerHTML") && !page.contains("@import"))
        #expect(page.contains("fetch(\"/status.json\""))
        #expect(page.hasSuffix("</html>\n"))
        #expect(try server.get("/status.json").contains("\\u003cb\\u003ename"))
    }

    @Test(arguments: ["-1", "60001", "x", "", "99999999999999999999"])
    func `a wrong delay is refused`(milliseconds: String) throws {
        let server = try PortDirectoryOfTest().serve("--loops", "1")
        #expect(try server.get("/slow?ms=\(milliseconds)").hasPrefix("HTTP/1.1 400 "))
        #expect(try server.get("/slow?ms=0").contains("0 ms later"))
        #expect(try server.get("/nothing").hasPrefix("HTTP/1.1 404 "))
    }
}

#endif
