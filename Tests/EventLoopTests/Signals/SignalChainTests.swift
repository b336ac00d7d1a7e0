// Rules proved here (signals.c):
// - A handler that was installed before is called as well, with the flags it asked for. The signal's default action does not happen, and a
//   signal that was ignored still reaches the sources.
// - The end of the last source restores the previous action if our handler is still on top. A handler that was installed over ours stays,
//   and may continue to call ours; later sources are notified once.
// - errno is preserved. A child of fork starts with the previous actions, and takes nothing from the parent's sources.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct SignalChainTests {
    @Test func `an earlier plain handler is called once for each signal, and restored`() throws {
        let signal = testSignal(10)
        try chain(signal, .plain(plainHandler)) { plainCalls[Int(signal)].value }
    }

    @Test func `an earlier handler with details receives them, and is restored`() throws {
        let signal = testSignal(11)
        try chain(signal, .detailed(detailedHandler)) { detailedCalls[Int(signal)].value }
    }

    private func chain(_ signal: Int32, _ installed: Installed, _ calls: @escaping @Sendable () -> Int) throws {
        try onFreshThread { loop in
            letThrough(signal)
            install(installed, for: signal)
            let handler = installedHandler(of: signal)
            let told = Box(0)
            let sources = try (0..<2).map { _ in try countingSource(signal, told) }
            #expect(installedHandler(of: signal) != handler)
            for source in sources { loop.add(source) }
            raiseHere(signal, times: 3)
            #expect(calls() == 3)
            _ = loop.run(for: .zero)
            #expect(told.value == 6)
            sources[0].invalidate()
            raiseHere(signal)
            #expect(calls() == 4)
            sources[1].invalidate()
            #expect(installedHandler(of: signal) == handler)
            raiseHere(signal)
            #expect(calls() == 5)
            _ = loop.run(for: .zero)
            #expect(told.value == 6)
        }
    }

    @Test func `an ignored signal reaches a source, and is ignored again afterwards`() throws {
        let signal = testSignal(12)
        try onFreshThread { loop in
            letThrough(signal)
            install(.ignored, for: signal)
            let handler = installedHandler(of: signal)
            raiseHere(signal)
            let told = Box(0)
            let source = try countingSource(signal, told)
            loop.add(source)
            raiseHere(signal, times: 2)
            _ = loop.run(for: .zero)
            #expect(told.value == 2)
            source.invalidate()
            #expect(installedHandler(of: signal) == handler)
            raiseHere(signal)
        }
    }

    @Test func `the default action does not happen while there is a source, and happens afterwards`() async {
        await #expect(processExitsWith: .signal(SIGTERM)) {
            try onFreshThread { loop in
                letThrough(SIGTERM)
                let told = Box(0)
                let source = try countingSource(SIGTERM, told)
                loop.add(source)
                raiseHere(SIGTERM)
                _ = loop.run(for: .zero)
                if told.value != 1 { exit(3) }
                source.invalidate()
                raiseHere(SIGTERM)
            }
            exit(4)
        }
    }

    @Test func `an earlier handler with SA_RESETHAND receives one signal`() throws {
        let signal = testSignal(13)
        try onFreshThread { loop in
            letThrough(signal)
            install(.plain(plainHandler), for: signal, flags: Int32(truncatingIfNeeded: Int(SA_RESETHAND)))
            let told = Box(0)
            let source = try countingSource(signal, told)
            loop.add(source)
            raiseHere(signal, times: 3)
            _ = loop.run(for: .zero)
            #expect(plainCalls[Int(signal)].value == 1 && told.value == 3)
            source.invalidate()
            #expect(installedHandler(of: signal) == 0)
        }
    }

    @Test func `a handler that was installed over ours stays, and may call ours after the last source has ended`() throws {
        let signal = testSignal(14)
        try onFreshThread { loop in
            letThrough(signal)
            install(.plain(plainHandler), for: signal)
            let told = Box(0)
            var source = try countingSource(signal, told)
            for round in 1...3 {
                loop.add(source)
                coverer.install(over: signal)
                let top = installedHandler(of: signal)
                raiseHere(signal)
                _ = loop.run(for: .zero)
                #expect(told.value == 2 * round - 1)
                source.invalidate()
                #expect(installedHandler(of: signal) == top)
                // The covering handler calls ours, and ours calls the first handler.
                raiseHere(signal)
                source = try countingSource(signal, told)
                loop.add(source)
                raiseHere(signal)
                _ = loop.run(for: .zero)
                // The source is notified once, although our handler is in the chain twice.
                #expect(told.value == 2 * round)
                source.invalidate()
                #expect(installedHandler(of: signal) == top)
                source = try countingSource(signal, told)
            }
            source.invalidate()
            #expect(plainCalls[Int(signal)].value == 9)
            #expect(coverer.counts == 3 * (1 + 2 + 3))
        }
    }

    @Test func `a new source throws EBUSY if other code has installed its handler over ours too often`() throws {
        let signal = testSignal(17)
        for _ in 0..<8 {
            let source = try countingSource(signal, Box(0))
            install(.plain(plainHandler), for: signal)
            source.invalidate()
        }
        #expect(throws: RunLoop.SourceError.system(operation: "sigaction of signal \(signal)", errno: EBUSY)) {
            try countingSource(signal, Box(0))
        }
    }

    @Test func `our handler works again if other code puts it back`() throws {
        let signal = testSignal(15)
        try onFreshThread { loop in
            letThrough(signal)
            let told = Box(0)
            let first = try countingSource(signal, told)
            loop.add(first)
            let ours = install(.plain(plainHandler), for: signal)
            first.invalidate()
            putBack(ours, for: signal)
            let second = try countingSource(signal, told)
            loop.add(second)
            raiseHere(signal, times: 2)
            _ = loop.run(for: .zero)
            #expect(told.value == 2)
            second.invalidate()
            #expect(installedHandler(of: signal) == 0)
        }
    }

    @Test func `errno is preserved`() throws {
        let signal = testSignal(16)
        try onFreshThread { loop in
            letThrough(signal)
            let source = try countingSource(signal, Box(0))
            loop.add(source)
            for _ in 0..<3 {
                errno = 77
                _ = pthread_kill(pthread_self(), signal)
                let after = errno
                #expect(after == 77)
            }
            source.invalidate()
        }
    }

    @Test func `the kernel reaps children while SIGCHLD is watched, if SIGCHLD was ignored before`() async {
        await #expect(processExitsWith: .success) {
            install(.ignored, for: SIGCHLD)
            letThrough(SIGCHLD)
            try onFreshThread { loop in
                let told = Box(0)
                loop.add(try countingSource(SIGCHLD, told))
                let child = spawn("exit 3")
                #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
                #expect(waitForEnd(of: child) == nil)
                #expect(told.value == 1)
            }
        }
    }

    @Test func `a child of fork has the previous actions, notifies nobody, and may watch signals itself`() async {
        await #expect(processExitsWith: .success) {
            letThrough(SIGUSR1, SIGUSR2)
            install(.plain(plainHandler), for: SIGUSR2)
            let told = Box(0)
            let thread = try RunLoopThread(name: "parent")
            let sources = [try countingSource(SIGUSR1, told), try countingSource(SIGUSR2, told)]
            for source in sources { thread.runLoop.add(source) }
            try plainThread { try thread.runLoop.performAndWait {} }.join()
            try waitUntilAsleep(thread.runLoop)
            let killed = inForkedChild {
                raiseHere(SIGUSR2)
                if plainCalls[Int(SIGUSR2)].value != 1 { return 1 }
                raiseHere(SIGUSR1)
                return 2
            }
            #expect(killed.signal == SIGUSR1)
            let watching = inForkedChild {
                let count = try? onFreshThread { loop in
                    letThrough(SIGUSR1)
                    let told = Box(0)
                    let source = try countingSource(SIGUSR1, told)
                    loop.add(source)
                    raiseHere(SIGUSR1)
                    _ = loop.run(for: .zero)
                    source.invalidate()
                    return told.value
                }
                return count == 1 && installedHandler(of: SIGUSR1) == 0 ? 0 : 1
            }
            #expect(watching.status == 0)
            #expect(told.value == 0)
            raiseHere(SIGUSR1)
            try waitUntil { told.value == 1 }
            thread.stop()
            #expect(await thread.join(timeout: patience))
        }
    }

    @Test func `a child that serves an inherited source takes nothing from its parent, and does not spin`() async {
        await #expect(processExitsWith: .success) {
            letThrough(SIGUSR1)
            let told = Box(0)
            let source = try countingSource(SIGUSR1, told)
            raiseHere(SIGUSR1)
            expectEndInChild(of: source, calls: told)
            raiseHere(SIGUSR1)
            try onFreshThread { loop in
                loop.add(source)
                _ = loop.run(for: .zero)
            }
            #expect(told.value == 2)
        }
    }
}

/// Installs itself over the current handler and calls that handler, as a well-behaved library does.
private let coverer = Coverer()

private final class Coverer: @unchecked Sendable {
    // SAFETY: the tests that use it run one after another on their own threads, and send signals to those threads.
    var below: [sigaction] = []
    private(set) var counts = 0

    func install(over signal: Int32) {
        let functions: [@convention(c) (Int32, UnsafeMutablePointer<siginfo_t>?, UnsafeMutableRawPointer?) -> Void] = [
            { coverer.handle(0, $0, $1, $2) }, { coverer.handle(1, $0, $1, $2) }, { coverer.handle(2, $0, $1, $2) },
        ]
        let depth = below.count
        below.append(sigaction())
        below[depth] = EventLoopTests.install(.detailed(functions[depth]), for: signal)
    }

    private func handle(
        _ depth: Int, _ signal: Int32, _ info: UnsafeMutablePointer<siginfo_t>?, _ context: UnsafeMutableRawPointer?
    ) {
        counts += 1
        let action = below[depth]
        #if canImport(Glibc)
        action.__sigaction_handler.sa_sigaction(signal, info, context)
        #else
        action.__sigaction_u.__sa_sigaction(signal, info, context)
        #endif
    }
}
