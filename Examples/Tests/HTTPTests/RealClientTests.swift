// Rules proved here: real clients get what the server has: curl, Python's http.client, ab, nginx as a proxy, and a browser. The examples answer. Where a
// program is missing, its test is skipped.

#if os(Linux)

import EventLoop
import EventLoopHTTP
import Glibc
import HTTPTypes
import TestSupport
import Testing

private func isInstalled(_ program: String) -> Bool { (try? programPath(program)) != nil }

@Suite(.bounded) struct RealClientTests {
    private static let respond: @Sendable (Request) async throws -> Response = { request in
        switch request.path {
        case "/large": return Response(body: .bytes([UInt8](repeating: 65, count: 200_000)))
        case "/sequence":
            let (stream, continuation) = AsyncThrowingStream<[UInt8], any Error>.makeStream()
            for _ in 0..<10 { continuation.yield([UInt8](repeating: 66, count: 1_000)) }
            continuation.finish()
            return Response(body: .sequence(stream))
        case "/echo": return Response(body: .bytes(request.body))
        default: return .text("\(request.head.method) \(request.path)")
        }
    }

    private func port(of server: HTTPServer) -> UInt16 {
        guard case .ipv4(_, let port) = server.localAddress else { preconditionFailure("the server listens on 127.0.0.1") }
        return port
    }

    @Test(.enabled(if: isInstalled("curl"), "curl is not installed"))
    func `curl asks, posts, expects, and uses a connection again`() async throws {
        try await withServer(respond: Self.respond) { server in
            let url = "http://127.0.0.1:\(port(of: server))"
            let plain = try output(of: "curl", ["-sS", url + "/a"])
            #expect(plain == "GET /a")
            #expect(try output(of: "curl", ["-sS", "-0", url + "/a"]) == "GET /a")
            #expect(try output(of: "curl", ["-sS", "-d", "hello", url + "/echo"]) == "hello")
            #expect(try output(of: "curl", ["-sS", "-H", "Expect: 100-continue", "-d", "hello", url + "/echo"]) == "hello")
            #expect(try output(of: "curl", ["-sS", "-H", "Transfer-Encoding: chunked", "-d", "hello", url + "/echo"]) == "hello")
            #expect(try output(of: "curl", ["-sS", url + "/sequence"]).count == 10_000)
            #expect(try output(of: "curl", ["-sS", url + "/large", url + "/a"]).count == 200_006)
            #expect(try output(of: "curl", ["-sS", "-I", url + "/large"]).lowercased().contains("content-length: 200000"))
            #expect(try output(of: "curl", ["-sS", "-w", "%{num_connects}", url + "/a", url + "/b"]) == "GET /a1GET /b0")
        }
    }

    @Test(.enabled(if: isInstalled("python3"), "python3 is not installed"))
    func `Python's http client asks, posts, and uses a connection again`() async throws {
        try await withServer(respond: Self.respond) { server in
            let program = """
                import http.client
                c = http.client.HTTPConnection("127.0.0.1", \(port(of: server)))
                def ask(*arguments, **options):
                    c.request(*arguments, **options)
                    r = c.getresponse()
                    print(r.status, len(r.read()))
                ask("GET", "/a")
                ask("HEAD", "/large")
                ask("GET", "/large")
                ask("POST", "/echo", body=b"x" * 100000)
                ask("POST", "/echo", body=iter([b"one", b"two"]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
                ask("GET", "/sequence")
                """
            let printed = try output(of: "python3", ["-c", program])
            #expect(printed == "200 6\n200 0\n200 200000\n200 100000\n200 6\n200 10000\n")
        }
    }

    // MARK: Load generators

    @Test(.enabled(if: isInstalled("ab"), "ab is not installed"))
    func `ab gets two thousand answers on connections that HTTP 1.0 keeps, and as many on new ones`() async throws {
        try await withServer(respond: Self.respond) { server in
            let url = "http://127.0.0.1:\(port(of: server))/a"
            for (option, kept) in [(["-k"], 2_000), ([], nil)] as [([String], Int?)] {
                let report = try output(of: "ab", ["-q", "-n", "2000", "-c", "20"] + option + [url])
                #expect(report.contains(#/Complete requests: +2000\n/#) && report.contains(#/Failed requests: +0\n/#), "\(report)")
                #expect(!report.contains("Non-2xx"), "\(report)")
                if let kept { #expect(report.contains("Keep-Alive requests:    \(kept)"), "\(report)") }
            }
        }
    }

    @Test(.enabled(if: isInstalled("wrk"), "wrk is not installed"))
    func `wrk gets answers on 32 connections without an error`() async throws {
        try await withServer(loops: 2, respond: Self.respond) { server in
            for path in ["/a", "/large", "/sequence"] {
                let report = try output(of: "wrk", ["-d", "1", "-c", "32", "-t", "2", "http://127.0.0.1:\(port(of: server))\(path)"])
                #expect(report.contains("requests in") && !report.contains("Socket errors") && !report.contains("Non-2xx"), "\(report)")
            }
        }
    }

    // MARK: A proxy in front

    /// nginx keeps its connections to the server, which is on a Unix socket.
    @Test(.enabled(if: isInstalled("nginx"), "nginx is not installed"))
    func `nginx as a proxy passes on requests and answers of every kind`() async throws {
        try await withFolder { folder in
            try await withServer(address: .unix(path: folder + "/s"), respond: Self.respond) { _ in
                let settings = """
                    daemon off; master_process off; pid \(folder)/pid; error_log \(folder)/errors warn;
                    events {}
                    http {
                        access_log off; client_body_temp_path \(folder); proxy_temp_path \(folder); fastcgi_temp_path \(folder);
                        uwsgi_temp_path \(folder); scgi_temp_path \(folder);
                        upstream ours { server unix:\(folder)/s; keepalive 4; }
                        server {
                            listen unix:\(folder)/front; proxy_http_version 1.1; proxy_set_header Connection "";
                            location / { proxy_pass http://ours; proxy_request_buffering off; proxy_buffering off; }
                        }
                    }
                    """
                try write(settings, to: folder + "/settings")
                let nginx = Child(try programPath("nginx"), ["-p", folder, "-e", folder + "/errors", "-c", folder + "/settings"])
                try waitUntil("nginx listens") { (try? Client(to: .unix(path: folder + "/front"))) != nil }
                let client = try Client(to: .unix(path: folder + "/front"))
                for _ in 0..<20 {
                    #expect(try client.ask(get("/a")).text == "GET /a")
                    #expect(try client.ask("HEAD /large HTTP/1.1\r\nHost: t\r\n\r\n", isHead: true)["content-length"] == "200000")
                    #expect(try client.ask(get("/large")).body.count == 200_000)
                    #expect(try client.ask(get("/sequence")).body.count == 10_000)
                    #expect(try client.ask("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello").text == "hello")
                    let chunks = "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
                    #expect(try client.ask(chunks).text == "hello")
                }
                client.close()
                nginx.kill(SIGTERM)
                #expect(waitForEnd(of: nginx.pid) == 0)
            }
        }
    }

    private func write(_ text: String, to path: String) throws {
        let descriptor = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0o600)
        let count = Glibc.write(descriptor, text, text.utf8.count)
        close(descriptor)
        try #require(count == text.utf8.count)
    }

    // MARK: A browser

    @Test(.enabled(if: isInstalled("chromium") && isInstalled("python3"), "chromium or python3 is not installed"))
    func `a browser loads a page with a dozen files`() async throws {
        try await withFolder { folder in
            var page = "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'><body>"
            for number in 1...4 {
                page += "<link rel=stylesheet href=style\(number).css><script src=script\(number).js></script><img src=image\(number).svg>"
                try write("body { --style\(number): \(number) }", to: folder + "/style\(number).css")
                // Larger than what goes out with its head.
                let script = "window.loaded = (window.loaded || 0) + 1 //" + String(repeating: "x", count: 40_000)
                try write(script, to: folder + "/script\(number).js")
                try write("<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>", to: folder + "/image\(number).svg")
            }
            try write(page, to: folder + "/page.html")
            let respond: @Sendable (Request) async throws -> Response = { Response(body: .file(path: folder + $0.path)) }
            try await withServer(respond: respond) { server in
                let scripts = #filePath.split(separator: "/").dropLast(4).map { "/" + $0 }.joined() + "/Scripts"
                let program = """
                    import sys, time
                    sys.path.insert(0, "\(scripts)")
                    from browser import Browser
                    with Browser() as b:
                        b.call("Page.navigate", url="http://127.0.0.1:\(port(of: server))/page.html")
                        while b.run("location.protocol + document.readyState") != "http:complete":
                            time.sleep(0.02)
                        print(b.run("[window.loaded, [...document.images].filter(i => i.naturalWidth == 9).length,"
                                    "[1, 2, 3, 4].map(n => getComputedStyle(document.body).getPropertyValue('--style' + n).trim()).join(''),"
                                    "performance.getEntriesByType('resource').filter(e => e.responseStatus == 200).length].join(' ')"))
                    """
                try write(program, to: folder + "/program.py")
                #expect(try output(of: "python3", [folder + "/program.py"]) == "4 4 1234 12\n")
            }
        }
    }

    // MARK: The examples

    @Test func `the example of a service answers its operator, and ends when it is asked to`() async throws {
        try await withFolder { folder in
            try await elsewhere {
                let (program, path) = (try builtProgramPath("http-service"), folder + "/s")
                let child = Child("/bin/sh", ["-c", "exec '\(program)' '\(path)' 2>/dev/null"])
                try waitUntil("the program listens") { (try? Client(to: .unix(path: path))) != nil }
                let client = try Client(to: .unix(path: path))
                #expect(try client.ask(get("/health")).text == "well\n")
                #expect(try client.ask(get("/other")).status == 404)
                let page = try client.ask(get("/status"))
                #expect(page["content-type"] == "text/html; charset=utf-8" && page.text.contains("<td>http-1</td>"))
                let figures = try client.ask(get("/metrics")).text.split(separator: "\n")
                #expect(figures.contains("# TYPE http_request_duration_seconds summary"))
                for line in [#"http_requests_total{status="200"} 2.0"#, #"http_requests_total{status="404"} 1.0"#] {
                    #expect(figures.contains { $0 == line }, "\(line)")
                }
                #expect(figures.contains { $0.hasPrefix(#"eventloop_passes_total{loop="http-0"}"#) })
                for (order, status, text) in [
                    (#"{"article": "pen", "count": 2}"#, 201, #"{"total":6}"#),
                    (#"{"article": "pen"}"#, 400, "an order has an article and a count from 1 to 1,000\n"),
                ] {
                    let head = "POST /orders HTTP/1.1\r\nHost: test\r\nContent-Length: \(order.utf8.count)\r\n\r\n"
                    let answer = try client.ask(head + order)
                    #expect(answer.status == status && answer.text == text, "\(answer)")
                }
                #expect(try client.ask(get("/orders")).status == 405)
                child.kill(SIGTERM)
                #expect(try client.isClosed())
                client.close()
                #expect(waitForEnd(of: child.pid) == 0)
            }
        }
    }

    @Test func `the example answers, and ends when it is asked to`() async throws {
        try await withFolder { folder in
            try await elsewhere {
                try write("<p>", to: folder + "/manual.html")
                let (program, path) = (try builtProgramPath("http-server"), folder + "/s")
                let child = Child("/bin/sh", ["-c", "exec '\(program)' '\(folder)' '\(path)' >/dev/null"])
                try waitUntil("the program listens") { (try? Client(to: .unix(path: path))) != nil }
                let client = try Client(to: .unix(path: path))
                #expect(try client.ask(get("/status")).text == #"{"status": "fine"}"#)
                #expect(try client.ask(get("/manual")).text == "<p>")
                #expect(try client.ask(get("/other")).status == 404)
                try client.send(get("/ticks"))
                try client.receive()
                client.close()
                child.kill(SIGTERM)
                #expect(waitForEnd(of: child.pid) == 0)
            }
        }
    }
}

#endif
