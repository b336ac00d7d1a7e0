// Rules proved here (RunLoop+Addresses.swift, Resolver.swift):
// - Numeric hosts are answered without a thread, with the interface of an IPv6 address. Addresses keep the resolver's order.
// - A name that cannot be found throws `hostNotFound` with the resolver's sentence; so does one that no resolver can be asked for.
// - Cancelling the task ends the waiting at once, and cancels the lookup if it has not begun.
// - A child of fork can look up names.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct AddressesTests {
    @Test(arguments: [
        ("127.0.0.1", SocketAddress.ipv4(host: "127.0.0.1", port: 80)), ("::1", .ipv6(host: "::1", port: 80)),
        ("0:0::0:1", .ipv6(host: "::1", port: 80)), ("127.1", .ipv4(host: "127.0.0.1", port: 80)),
    ])
    func `a numeric host is its own address`(host: String, address: SocketAddress) async throws {
        let thread = try RunLoopThread(name: "names")
        #expect(try await thread.runLoop.addresses(ofHost: host, port: 80) == [address])
        // Without a thread: the answer is there when the call returns.
        guard case .success([address.withPort(0)])? = SystemLookup.withoutThread(host) else {
            Issue.record("a thread looked up \(host)")
            return
        }
        thread.stop()
        await thread.join()
    }

    #if os(Linux)
    @Test func `the interface of an IPv6 address is kept`() throws {
        for scope in ["lo", "1"] {
            guard case .success(let addresses)? = SystemLookup.withoutThread("fe80::1%" + scope) else {
                Issue.record("not numeric: \(scope)")
                continue
            }
            #expect(addresses == [.ipv6(host: "fe80::1%lo", port: 0)])
        }
    }
    #endif

    @Test(arguments: [
        ("", "the name is empty"), ("a\0b", "the name contains a zero byte"),
        (String(repeating: "x", count: 1025), "the name has more than 1024 bytes"),
    ])
    func `a name that no resolver can be asked for is not found`(host: String, reason: String) async throws {
        try await withTestLoop { loop in
            _ = await #expect(throws: StreamError.hostNotFound(host: host, reason: reason)) {
                try await loop.addresses(ofHost: host, port: 1)
            }
        }
    }

    @Test func `the resolver's sentence is thrown for an unknown name`() async throws {
        // DNS has no label of more than 63 letters, so no server is asked.
        let host = String(repeating: "x", count: 70)
        try await withTestLoop { loop in
            let error = await #expect(throws: StreamError.self) { try await loop.addresses(ofHost: host, port: 1) }
            guard case .hostNotFound(host, let reason)? = error else {
                Issue.record("\(String(describing: error))")
                return
            }
            #expect(reason.count > 5, "\(reason)")
        }
    }

    @Test func `localhost is found, on a thread of the pool, each address once`() async throws {
        try await withTestLoop { loop in
            #expect(SystemLookup.withoutThread("localhost") == nil)
            let addresses = try await loop.addresses(ofHost: "localhost", port: 7)
            #expect(Set(addresses).count == addresses.count)
            #expect(addresses.contains(.ipv4(host: "127.0.0.1", port: 7)) || addresses.contains(.ipv6(host: "::1", port: 7)))
        }
    }

    @Test func `a lookup on a loop that has ended throws RunLoopEnded`() async throws {
        let thread = try RunLoopThread(name: "names")
        thread.stop()
        await thread.join()
        await #expect(throws: RunLoopEnded.self) { try await thread.runLoop.addresses(ofHost: "::1", port: 1) }
    }

    @Test func `a lookup in progress throws RunLoopEnded when its loop ends`() async throws {
        let thread = try RunLoopThread(name: "names")
        let trace = Trace()
        let silent = Resolver { _, _, _ in
            trace.add("asked")
            return { trace.add("cancelled") }
        }
        let task = Task { try await thread.runLoop.addresses(ofHost: "example", port: 1, resolver: silent) }
        try await suspendUntil("it is asked") { trace.list == ["asked"] }
        thread.stop()
        await #expect(throws: RunLoopEnded.self) { try await task.value }
        #expect(trace.list == ["asked", "cancelled"])
        await thread.join()
    }

    @Test func `cancelling the task ends the waiting and cancels the lookup`() async throws {
        let trace = Trace()
        let begun = Gate()
        let resolver = Resolver { host, _, _ in
            trace.add(host)
            begun.open()
            return { trace.add("cancelled") }
        }
        try await withTestLoop { loop in
            let task = Task { try await loop.addresses(ofHost: "example", port: 1, resolver: resolver) }
            try await begun.waitInTask()
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
            // Cancelled before it calls, it does not begin.
            let late = Task {
                await suspendUntilCancelled()
                return try await loop.addresses(ofHost: "late", port: 1, resolver: resolver)
            }
            late.cancel()
            await #expect(throws: CancellationError.self) { try await late.value }
        }
        #expect(trace.description == "example cancelled")
    }

    @Test func `an answer and a cancellation at the same time end in one of them`() async throws {
        try await withTestLoop { loop in
            for _ in 0..<200 {
                let answers = Locked<[Resolver.Answer]>([])
                let resolver = Resolver { _, _, answer in
                    answers.withLock { $0.append(answer) }
                    return {}
                }
                let task = Task { try await loop.addresses(ofHost: "example", port: 1, resolver: resolver) }
                try await suspendUntil("the lookup begins") { answers.withLock { !$0.isEmpty } }
                let answerer = plainThread { answers.withLock { $0[0] }(.success([.ipv6(host: "::1", port: 1)])) }
                task.cancel()
                switch await task.result {
                case .success(let addresses): #expect(addresses == [.ipv6(host: "::1", port: 1)])
                case .failure(let error): #expect(error is CancellationError)
                }
                try answerer.join()
            }
        }
    }

    @Test func `many lookups at once are all answered`() async throws {
        try await withTestLoop { loop in
            try await withThrowingTaskGroup(of: [SocketAddress].self) { group in
                for _ in 0..<300 { group.addTask { try await loop.addresses(ofHost: "localhost", port: 1) } }
                for try await addresses in group { #expect(!addresses.isEmpty) }
            }
        }
        try waitUntil("the threads end") { LookupPool.shared.load == (0, 0) }
    }

    #if os(Linux)
    @Test func `a child of fork looks up names with threads of its own`() async {
        await #expect(processExitsWith: .success) {
            #expect(try onFreshThread { loop in try lookUp(on: loop) })
            // Lookups of the parent block all threads of its pool at the fork.
            let (begun, gate) = (Counter(), Gate())
            for _ in 0..<4 {
                LookupPool.shared.start {
                    begun.increment()
                    gate.wait()
                } refuse: { _ in
                }
            }
            try waitUntil { begun.value == 4 }
            let end = inForkedChild {
                guard LookupPool.shared.load == (0, 0) else { return 1 }
                let found = try? onFreshThread { loop in try lookUp(on: loop) }
                return found == true ? 0 : 2
            }
            gate.open()
            #expect(end.status == 0, "\(end)")
        }
    }
    #endif
}

/// Looks up a name in a task on `loop`, and calls a body on the process's pool. Whether both gave an answer.
@Sendable private func lookUp(on loop: RunLoop) throws -> Bool {
    let found = Box(false)
    let keepAlive = loop.keepAlive()
    _ = Task(executorPreference: loop) {
        let addresses = try? await loop.addresses(ofHost: "127.0.0.1", port: 1)
        let answered = Gate()
        LookupPool.shared.start {
            answered.open()
        } refuse: { _ in
        }
        answered.wait()
        found.value = addresses == [.ipv4(host: "127.0.0.1", port: 1)]
        keepAlive.cancel()
    }
    _ = loop.run(for: patience)
    return found.value
}
