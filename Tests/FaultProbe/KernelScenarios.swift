// The scenarios of signals, child processes, sockets and ports.

import CFaults
import EventLoop
import EventLoopMessagePorts
import Synchronization

#if canImport(Glibc)
import Glibc
#endif

extension Scenario {
    static let signals = Scenario(name: "signals", mayStopWith: [noLoop]) { _ in
        try onThread { loop in
            let (seen, ended) = (Counter(), Counter())
            let source = try RunLoop.SignalSource(signal: SIGUSR1) { _, _ in seen.increment() }
            defer { source.invalidate() }
            loop.add(source)
            kill(getpid(), SIGUSR1)
            let child = try spawn("/bin/true")
            defer { waitpid(child, nil, 0) }
            let process = try RunLoop.ProcessSource(pid: child) { _, status in if status == .exited(0) { ended.increment() } }
            defer { process.invalidate() }
            loop.add(process)
            run(loop) { seen.value >= 1 && ended.value == 1 || process.failure != nil || source.failure != nil }
            try require(seen.value >= 1, [source], "the signal is lost")
            try require(ended.value == 1, [process], "the child's end is lost")
        }
    }

    static let civilTime = Scenario(name: "civil time", mayStopWith: [noLoop]) { _ in
        try onThread { loop in
            let fired = Counter()
            let timer = try RunLoop.WallTimer(fireAt: .now + .milliseconds(2)) { _ in fired.increment() }
            defer { timer.invalidate() }
            let changes = try RunLoop.ClockChangeSource { _, _ in }
            defer { changes.invalidate() }
            loop.add(timer)
            loop.add(changes)
            run(loop) { fired.value >= 1 || timer.failure != nil }
            try require(fired.value == 1, [timer], "the date is lost, or came twice")
        }
    }

    /// A pipe without a reader is in error: one source asks for it, and one is muted after some calls.
    static let exceptional = Scenario(name: "exceptional events", mayStopWith: [noLoop]) { _ in
        try onThread { loop in
            var ends: [Int32] = [-1, -1]
            guard pipe(&ends) == 0 else { throw OwnCall(name: "pipe") }
            close(ends[0])
            defer { close(ends[1]) }
            let (errors, calls, urgent) = (Counter(), Counter(), Counter())
            let asking = try RunLoop.DescriptorSource(descriptor: ends[1], events: .error) { source, events in
                if events == .error { errors.increment() }
                source.invalidate()
            }
            defer { asking.invalidate() }
            let muted = try RunLoop.DescriptorSource(descriptor: ends[1], events: .read) { _, _ in calls.increment() }
            defer { muted.invalidate() }
            let silent = try RunLoop.DescriptorSource(descriptor: ends[1], events: [.priority, .error], trigger: .edge) { _, _ in
                urgent.increment()
            }
            defer { silent.invalidate() }
            for source in [asking, muted, silent] { loop.add(source) }
            run(loop) {
                (errors.value >= 1 || asking.failure != nil) && (calls.value >= 1 || muted.failure != nil)
                    && (urgent.value >= 1 || silent.failure != nil)
            }
            try require(errors.value == 1, [asking], "the error is lost")
            try require(calls.value >= 1, [muted], "the error is lost for a source that does not ask for it")
            try require(urgent.value >= 1, [silent], "the edge is lost")
        }
    }

    static let sockets = Scenario(name: "sockets", mayStopWith: [noLoop]) { world in
        let path = "\(world.folder)/socket"
        // A listener whose unlink has failed leaves the file.
        faults_own_unlink(path)
        try onThread { loop in
            let (accepted, connected, received) = (Counter(), Counter(), Counter())
            let failure = Mutex<RunLoop.SourceError?>(nil)
            let open = Mutex<[Int32]>([])
            defer { for descriptor in open.withLock({ $0 }) { close(descriptor) } }
            let listener = try RunLoop.SocketSource(listeningOn: .unix(path: path)) { _, descriptor, _ in
                accepted.increment()
                open.withLock { $0.append(descriptor) }
                _ = faults_own_write(descriptor, "hello", 5)
            }
            defer { listener.invalidate() }
            let client = try RunLoop.SocketSource(connectingTo: .unix(path: path), timeout: .seconds(2)) { _, result in
                switch result {
                case .success(let descriptor):
                    connected.increment()
                    open.withLock { $0.append(descriptor) }
                    do throws(RunLoop.SourceError) {
                        let reader = try RunLoop.DescriptorSource(descriptor: descriptor, events: .read, trigger: .oneShot) { source, _ in
                            received.increment()
                            source.invalidate()
                        }
                        RunLoop.current.add(reader)
                        reader.onInvalidation {
                            if let error = reader.failure { failure.withLock { $0 = error } }
                        }
                    } catch { failure.withLock { $0 = error } }
                case .failure(let error): failure.withLock { $0 = error }
                }
            }
            defer { client.invalidate() }
            loop.add(listener)
            loop.add(client)
            // A listener waits for a descriptor as long as none is free.
            let late = RunLoop.Instant.now.advanced(by: .milliseconds(500))
            run(loop) {
                received.value == 1 || failure.withLock { $0 != nil } || listener.failure != nil || client.failure != nil
                    || RunLoop.Instant.now > late && !mayMakeDescriptor()
            }
            if let error = failure.withLock({ $0 }) { throw error }
            if received.value == 0 && !mayMakeDescriptor() { throw OwnCall(name: "pipe") }
            try require(
                received.value == 1, [listener, client],
                "accepted \(accepted.value), connected \(connected.value), received \(received.value)")
        }
    }

    /// A client of a port in another process.
    static let ports = Scenario(name: "ports", mayStopWith: [noLoop], hasPeer: true) { world in
        let remote = try RunLoop.RemoteMessagePort(name: world.port)
        defer { remote.invalidate() }
        for count in [0, 100, 100_000] {
            let data = [UInt8](repeating: 7, count: count)
            let reply = try remote.request(id: 0, data: data, sendTimeout: .seconds(2), replyTimeout: .seconds(2))
            try require(reply == data, "a reply of \(reply?.count ?? -1) bytes to a request of \(count)")
        }
        try onThread { _ in
            let reply = try remote.request(id: 0, data: [1], sendTimeout: .seconds(2), replyTimeout: .seconds(2), replyMode: "reply")
            try require(reply == [1], "another reply, in a mode")
        }
    }

    /// Server and client in this process.
    static let localPorts = Scenario(name: "local ports") { _ in
        let thread = try RunLoopThread(name: "server")
        defer {
            thread.stop()
            thread.join()
        }
        let server = try RunLoop.LocalMessagePort(name: "own") { _, _, data in data }
        defer { server.invalidate() }
        thread.runLoop.add(server)
        let remote = try RunLoop.RemoteMessagePort(name: "own")
        defer { remote.invalidate() }
        for count in [0, 100, 100_000] {
            let data = [UInt8](repeating: 9, count: count)
            do {
                let reply = try remote.request(id: 0, data: data, sendTimeout: .seconds(2), replyTimeout: .seconds(2))
                try require(reply == data, "a reply of \(reply?.count ?? -1) bytes to a request of \(count)")
            } catch {
                if let failure = server.failure { throw failure }
                throw error
            }
        }
    }

    private static func spawn(_ program: String) throws -> pid_t {
        var child: pid_t = 0
        var arguments: [UnsafeMutablePointer<CChar>?] = [strdup(program), nil]
        defer { free(arguments[0]) }
        let code = posix_spawn(&child, program, nil, nil, &arguments, environ)
        if code != 0 {
            errno = code
            throw OwnCall(name: "posix_spawn")
        }
        return child
    }
}
