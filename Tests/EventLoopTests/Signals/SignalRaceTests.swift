// Rules proved here: sources come and go, on several threads and while signals arrive on others, and who stays is told of every one; no memory
// is touched that has gone (the sanitizers look on); no descriptor is left.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite struct SignalRaceTests {
    @Test func `sources come and go while signals arrive, and who stays is told of all`() throws {
        let signal = testSignal(20)
        install(.plain(plainHandler), for: signal)
        let told = Box(0)
        let stays = try RunLoopThread(name: "stays")
        let source = try countingSource(signal, told)
        stays.runLoop.add(source)
        let rounds = 400 / roundsDivisor
        let comers = (0..<2).map { _ in
            joinableThread { loop in
                for round in 0..<rounds {
                    let source = try RunLoop.SignalSource(signal: signal) { source, _ in
                        if round % 3 == 0 { source.invalidate() }
                    }
                    loop.add(source)
                    if round % 2 == 0 { _ = loop.run(for: .zero) }
                    source.invalidate()
                }
            }
        }
        let senders = (0..<2).map { _ in
            plainThread {
                letThrough(signal)
                for _ in 0..<rounds * 10 { raiseHere(signal) }
            }
        }
        for comer in comers { try comer.join() }
        for sender in senders { try sender.join() }
        try waitUntil { told.value >= rounds * 20 }
        source.invalidate()
        stays.stop()
        #expect(stays.join(timeout: patience))
        #expect(told.value == rounds * 20)
        #expect(plainCalls[Int(signal)].value == rounds * 20)
    }

    @Test func `the last source comes and goes while signals arrive, and the handler from before hears each`() throws {
        let signal = testSignal(21)
        install(.plain(plainHandler), for: signal)
        let handler = installedHandler(of: signal)
        let rounds = 500 / roundsDivisor
        let isOver = Box(false)
        let sent = Box(0)
        let sender = plainThread {
            letThrough(signal)
            while !isOver.value {  // ends: when the other thread has made its rounds
                raiseHere(signal)
                sent.increment()
            }
        }
        try onFreshThread { loop in
            for _ in 0..<rounds {
                let source = try countingSource(signal, Box(0))
                loop.add(source)
                _ = loop.run(for: .zero)
                source.invalidate()
            }
        }
        isOver.value = true
        try sender.join()
        #expect(plainCalls[Int(signal)].value == sent.value)
        #expect(installedHandler(of: signal) == handler)
    }

    @Test func `a storm on the loop's own thread loses none`() throws {
        let signal = testSignal(22)
        install(.plain(plainHandler), for: signal)
        try onFreshThread { loop in
            letThrough(signal)
            let thread = currentThreadID()
            let (told, isOver) = (Box(0), Box(false))
            let source = try countingSource(signal, told)
            loop.add(source)
            let count = 3_000 / roundsDivisor
            let storm = plainThread {
                for _ in 0..<count {
                    try waitUntil("room in the queue of real-time signals") {
                        #if canImport(Glibc)
                        pthread_kill(pthread_t(thread), signal) == 0
                        #else
                        pthread_kill(pthread_t(bitPattern: thread)!, signal) == 0
                        #endif
                    }
                }
                loop.perform { isOver.value = true }
            }
            while !isOver.value || told.value < plainCalls[Int(signal)].value {  // ends: what was sent has a number
                let timer = RunLoop.Timer(fireAt: .distantFuture) { _ in }
                loop.add(timer)
                guard loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource else { break }
                timer.invalidate()
            }
            try storm.join()
            #expect(told.value == plainCalls[Int(signal)].value)
            // ThreadSanitizer keeps one of each kind for a thread that is busy.
            if roundsDivisor == 1 { #expect(told.value == count) }
            source.invalidate()
        }
    }
}
