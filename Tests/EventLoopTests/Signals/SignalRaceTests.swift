// Rules proved here: sources are made and ended on several threads while signals arrive on others. The remaining sources count every
// signal, freed memory is not touched (the sanitizers check this), and no descriptor is left open.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.threads)) struct SignalRaceTests {
    @Test func `while sources come and go during signals, the remaining sources count every signal`() throws {
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

    @Test func `while the last source comes and goes during signals, the earlier handler receives each signal`() throws {
        let signal = testSignal(21)
        install(.plain(plainHandler), for: signal)
        let handler = installedHandler(of: signal)
        let rounds = 500 / roundsDivisor
        let isOver = Box(false)
        let sent = Box(0)
        let sender = plainThread {
            letThrough(signal)
            while !isOver.value {  // ends: when the other thread has finished its rounds
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

    @Test func `a source loses no signal of a storm on the loop's own thread`() throws {
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
            while !isOver.value || told.value < plainCalls[Int(signal)].value {  // ends: the number of signals is finite
                let timer = RunLoop.Timer(fireAt: .distantFuture) { _ in }
                loop.add(timer)
                guard loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource else { break }
                timer.invalidate()
            }
            try storm.join()
            #expect(told.value == plainCalls[Int(signal)].value)
            // ThreadSanitizer keeps one pending signal of each kind for a busy thread.
            if roundsDivisor == 1 { #expect(told.value == count) }
            source.invalidate()
        }
    }
}
