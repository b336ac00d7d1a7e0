// Senders, values and masks of signals (semantics 18.9, 18.10):
//  - The handler finds who sent each signal, and with which value, oldest first.
//  - A signal that every thread has blocked reaches its source all the same; where a thread accepts it, no mask changes.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

#if os(Linux)
@Suite(.bounded, .serialized, .tags(.threads)) struct SignalDetailsTests {
    private typealias Details = RunLoop.SignalSource.Details

    @Test func `the handler finds the sender and the value of each signal, oldest first`() async {
        await #expect(processExitsWith: .success) {
            let signal = testSignal(1)
            let trace = try inManualTime { loop, _, trace in
                letThrough(signal)
                let source = try RunLoop.SignalSource(signal: signal) { source, count in
                    let sender = source.details.allSatisfy { $0.processID == getpid() && $0.userID == getuid() }
                    trace.add("\(count) \(sender) \(source.details.map { $0.value.map(String.init) ?? "none" })")
                }
                #expect(source.details == [])
                loop.add(source)
                for value in 1...3 { send(signal, value: Int32(value)) }
                raiseHere(signal)
                _ = loop.run(for: .zero)
                send(signal, value: -7)
                _ = loop.run(for: .zero)
                source.invalidate()
                return trace.description
            }
            #expect(trace == #"4 true ["1", "2", "3", "none"] 1 true ["-7"]"#)
        }
    }

    @Test func `of more signals than are kept, the first have their details, all are counted, and later ones have theirs`() async {
        await #expect(processExitsWith: .success) {
            let signal = testSignal(1)
            let trace = try inManualTime { loop, _, trace in
                letThrough(signal)
                let source = try RunLoop.SignalSource(signal: signal) { source, count in
                    let values = source.details.map { $0.value ?? 0 }
                    trace.add("\(count) \(values == Array(1...Int32(values.count))) \(values.count)")
                }
                loop.add(source)
                for value in 1...100 { send(signal, value: Int32(value)) }
                _ = loop.run(for: .zero)
                for value in 1...5 { send(signal, value: Int32(value)) }
                _ = loop.run(for: .zero)
                source.invalidate()
                return trace.description
            }
            #expect(trace == "100 true 64 5 true 5")
        }
    }

    @Test func `the details of many senders at once are whole`() async {
        await #expect(processExitsWith: .success) {
            let signal = testSignal(1)
            try onFreshThread { loop in
                let seen = Box<[Int32: Int]>([:])
                let isWhole = Box(true)
                let total = Box(0)
                let latest = Box<[Int32?]>([])
                let source = try RunLoop.SignalSource(signal: signal) { source, count in
                    total.value += count
                    latest.value = source.details.map(\.value)
                    for details in source.details {
                        if details.processID != getpid() || details.code != -1 { isWhole.value = false }
                        seen.change { $0[details.value ?? -1, default: 0] += 1 }
                    }
                    if total.value >= 2_000 { loop.stop() }
                }
                loop.add(source)
                letThrough(signal)
                let senders = (0..<4).map { sender in
                    plainThread {
                        letThrough(signal)
                        for _ in 0..<500 { send(signal, value: Int32(sender)) }
                    }
                }
                _ = loop.run(for: patience)
                for sender in senders { try sender.join() }
                #expect(isWhole.value && total.value == 2_000)
                #expect(seen.value.keys.allSatisfy { (0..<4).contains($0) })
                // Nothing of the crowd is left for a later call.
                send(signal, value: 99)
                _ = loop.run(for: patience)
                #expect(latest.value == [99])
                source.invalidate()
                #expect(seen.value.values.reduce(0, +) <= 2_001)
            }
        }
    }

    @Test func `a signal that a program was started with blocked reaches its source, sent before and after`() async {
        await #expect(processExitsWith: .success) {
            let end = inForkedChild {
                block(SIGTERM)
                let received = try? onFreshThread { loop in
                    let counts = Trace()
                    let source = try RunLoop.SignalSource(signal: SIGTERM) { _, count in
                        counts.add("\(count)")
                        loop.stop()
                    }
                    kill(getpid(), SIGTERM)
                    loop.add(source)
                    _ = loop.run(for: patience)
                    kill(getpid(), SIGTERM)
                    _ = loop.run(for: patience)
                    return counts.description
                }
                return received == "1 1" ? 0 : 1
            }
            #expect(end.status == 0, "\(end)")
        }
    }

    @Test func `the mask of a loop's thread stays as it is if another thread accepts the signal`() async {
        await #expect(processExitsWith: .success) {
            let end = inForkedChild {
                // The first thread of the child accepts it, except while it creates a thread or calls a handler of the signal.
                letThrough(SIGUSR1)
                let isWaiting = Box(false)
                let thread = joinableThread { loop in
                    try waitUntil("the first thread has created this one") { isWaiting.value }
                    block(SIGUSR1)
                    let source = try RunLoop.SignalSource(signal: SIGUSR1) { _, _ in loop.stop() }
                    loop.add(source)
                    _ = loop.run(for: .zero)
                    kill(getpid(), SIGUSR1)
                    _ = loop.run(for: patience)
                    var mask = sigset_t()
                    pthread_sigmask(SIG_BLOCK, nil, &mask)
                    return sigismember(&mask, SIGUSR1) == 1
                }
                isWaiting.value = true
                return (try? thread.join()) == true ? 0 : 1
            }
            #expect(end.status == 0, "\(end)")
        }
    }
}

private func block(_ signal: Int32) {
    var set = sigset_t()
    sigemptyset(&set)
    sigaddset(&set, signal)
    precondition(pthread_sigmask(SIG_BLOCK, &set, nil) == 0)
}

// Glibc's overlay does not have it.
@_silgen_name("pthread_sigqueue") private func systemSigqueue(_ thread: pthread_t, _ signal: Int32, _ value: sigval) -> Int32

/// Sends a signal with a value to this thread. Its handler has returned when this function returns.
private func send(_ signal: Int32, value: Int32) {
    var union = sigval()
    union.sival_int = value
    precondition(systemSigqueue(pthread_self(), signal, union) == 0)
}
#endif
