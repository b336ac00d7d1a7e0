// The second process of the tests of named ports. Its arguments are a command. It writes its results to standard output, one per line, and
// exits when its standard input is closed.

import EventLoop
import EventLoopMessagePorts

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@main
struct Peer {
    static func main() {
        signal(SIGPIPE, SIG_DFL)
        var arguments = Array(CommandLine.arguments.dropFirst())
        let what = arguments.removeFirst()
        do {
            switch what {
            case "serve": try serve(arguments[0])
            case "serve-without-main-thread": try serveWithoutMainThread(arguments[0])
            case "starve": try serve(arguments[0], descriptors: 12)
            case "take": take(arguments[0])
            case "ask": try ask(arguments[0], Int32(arguments[1])!, arguments[2])
            case "hang": try hang(arguments[0])
            case "hog": hog(arguments[0], Int(arguments[1])!)
            case "crowd": try crowd(arguments[0], Int(arguments[1])!)
            default: say("what is \(what)?")
            }
        } catch {
            say("\(error)")
            exit(1)
        }
    }

    /// Serves a port whose replies depend on the id of the request.
    private static func serve(_ name: String, descriptors: Int? = nil) throws {
        let loop = RunLoop.current
        let port = try RunLoop.LocalMessagePort(name: name, descriptorHandler: answer)
        let end = try RunLoop.DescriptorSource(descriptor: STDIN_FILENO, events: .read) { _, _ in loop.stop() }
        loop.add(port)
        loop.add(end)
        // Creates the bases and everything else that exists once.
        _ = loop.run(for: .zero)
        if let descriptors { lowerLimit(by: descriptors) }
        say("ready")
        loop.run()
        port.invalidate()
    }

    /// The same on another thread, when the main thread has ended.
    private static func serveWithoutMainThread(_ name: String) throws -> Never {
        let thread = try RunLoopThread(name: "server")
        thread.runLoop.perform {
            while access("/proc/self/fd/1", F_OK) == 0 { sched_yield() }  // ends: with the main thread
            do { try serve(name) } catch { say("\(error)") }
            exit(0)
        }
        pthread_exit(nil)
    }

    @Sendable private static func answer(
        _ port: RunLoop.LocalMessagePort, _ id: Int32, _ data: [UInt8], _ passed: RunLoop.PassedDescriptors
    ) -> [UInt8]? {
        switch id {
        case 0: return data
        case 1: return nil
        case 2:
            say("hanging")
            while true { pause() }  // ends: by a signal that kills
        case 3: exit(3)
        case 4: return Array("\(getpid())".utf8)
        case 5: return writeToAll(data, passed)
        case 6: return Array("\(passed.count)".utf8)
        case 7: return [UInt8](repeating: 7, count: Int(data.count) << 20)
        case 8:
            port.invalidate()
            return [1]
        case 9: return Array("\(passesOfAQuietTime())".utf8)
        case 10: return Array("\(openDescriptors())".utf8)
        default: return nil
        }
    }

    private static func writeToAll(_ data: [UInt8], _ passed: RunLoop.PassedDescriptors) -> [UInt8] {
        var flags = ""
        for index in 0..<passed.count {
            guard let descriptor = passed.take(index) else { continue }
            flags += fcntl(descriptor, F_GETFD) & FD_CLOEXEC != 0 ? "c" : "-"
            _ = data.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            close(descriptor)
        }
        return Array(flags.utf8)
    }

    /// Counts the passes of the loop during a time in which only the port needs any.
    private static func passesOfAQuietTime() -> UInt64 {
        let loop = RunLoop.current
        let before = loop.statistics.passes
        let deadline = RunLoop.Instant.now.advanced(by: .milliseconds(350))
        while loop.run(until: deadline) != .timedOut {}
        return loop.statistics.passes - before
    }

    private static func openDescriptors() -> Int { (0..<1_024).count { fcntl(Int32($0), F_GETFD) >= 0 } }

    /// Limits the process to `count` further descriptors.
    private static func lowerLimit(by count: Int) {
        var highest = 0
        for number in 0..<1_024 where fcntl(Int32(number), F_GETFD) >= 0 { highest = number }
        // Free numbers below the highest one count too.
        let free = (0...highest).count { fcntl(Int32($0), F_GETFD) < 0 }
        var limit = rlimit()
        limit.rlim_cur = rlim_t(highest + 1 + count - free)
        limit.rlim_max = limit.rlim_cur
        #if canImport(Glibc)
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        #else
        setrlimit(RLIMIT_NOFILE, &limit)
        #endif
    }

    /// Tries to take the name, and keeps it until the next line of input.
    private static func take(_ name: String) {
        say("here")
        _ = readLine()
        do {
            let port = try RunLoop.LocalMessagePort(name: name) { _, _, _ in nil }
            say("taken")
            _ = readLine()
            port.invalidate()
        } catch {
            say("\(error)")
        }
    }

    private static func ask(_ name: String, _ id: Int32, _ text: String) throws {
        let remote = try RunLoop.RemoteMessagePort(name: name)
        let reply = try remote.request(id: id, data: Array(text.utf8), sendTimeout: .seconds(300), replyTimeout: .seconds(300))
        say(reply.map { String(decoding: $0, as: UTF8.self) } ?? "nil")
    }

    /// Sends a request that gets no reply, and waits to be killed.
    private static func hang(_ name: String) throws {
        let remote = try RunLoop.RemoteMessagePort(name: name)
        say("asking")
        _ = try remote.request(id: 2, sendTimeout: .seconds(300), replyTimeout: .seconds(300))
    }

    /// Connects many times, and keeps up to 700 connections.
    private static func crowd(_ name: String, _ count: Int) throws {
        var kept: [RunLoop.RemoteMessagePort] = []
        for number in 0..<count {
            kept.append(try RunLoop.RemoteMessagePort(name: name, timeout: .seconds(1_200)))
            if kept.count > 700 { kept.removeFirst(100) }
            if number == count / 2 { say("half") }
        }
        say("done")
        _ = readLine()
    }

    /// Sends frames of 16 MiB without their last byte, each on a connection of its own, through plain sockets.
    private static func hog(_ name: String, _ count: Int) {
        let path = String(cString: getenv("EVENTLOOP_PORT_DIRECTORY")) + "/" + name
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let header: [UInt8] = [0xE7, 1, 2, 0, 0, 0, 0, 1] + [UInt8](repeating: 0, count: 12)
        let bytes = header + [UInt8](repeating: 0, count: 16 << 20)
        signal(SIGPIPE, SIG_IGN)
        for _ in 0..<count {
            let descriptor = socket(AF_UNIX, streamSocket, 0)
            let code = withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
            }
            if code != 0 { say("connect: errno \(errno)") }
            var sent = 0
            while sent < bytes.count {  // ends: the port reads everything, or closes the connection
                let written = bytes[sent...].withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
                if written < 0 { break }
                sent += written
            }
        }
        say("full")
        _ = readLine()
    }

    private static var streamSocket: Int32 {
        #if canImport(Glibc)
        Int32(SOCK_STREAM.rawValue)
        #else
        SOCK_STREAM
        #endif
    }

    private static func say(_ line: String) {
        let bytes = Array((line + "\n").utf8)
        _ = bytes.withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
    }
}
