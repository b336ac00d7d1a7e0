// OpenCombine on this package's run loop: its scheduler, the operators that use one, and its timer publisher.

import EventLoop
import EventLoopFoundation
import FoundationEssentials
import OpenCombine
import OpenCombineEventLoop
import Testing

typealias RunLoop = EventLoop.RunLoop
typealias Timer = EventLoop.RunLoop.Timer

/// A wait that takes this long fails.
private let patience = Duration.seconds(60)

@Suite(.serialized) struct RunLoopSchedulerTests {
    @Test func `an action is performed in the next pass, not at once`() {
        let loop = RunLoop.current
        var trace: [String] = []
        loop.schedule(options: nil) {
            trace.append("action")
            loop.stop()
        }
        trace.append("scheduled")
        #expect(loop.run(for: patience) == .stopped)
        #expect(trace == ["scheduled", "action"])
    }

    @Test func `actions are performed at their dates, in the order of the dates`() {
        let loop = RunLoop.current
        let start = loop.now
        var dates: [Int: Date] = [:]
        var order: [Int] = []
        for number in [3, 1, 2] {
            loop.schedule(after: start.advanced(by: .milliseconds(10 * number)), tolerance: .init(0), options: nil) {
                dates[number] = Date()
                order.append(number)
                if number == 3 { loop.stop() }
            }
        }
        #expect(loop.run(for: patience) == .stopped)
        #expect(order == [1, 2, 3])
        for (number, date) in dates { #expect(date >= start.date + 0.01 * Double(number)) }
    }

    @Test func `a repeating action ends when it is cancelled`() {
        let loop = RunLoop.current
        var count = 0
        var token: (any Cancellable)?
        token = loop.schedule(after: loop.now, interval: .milliseconds(2), tolerance: .init(0), options: nil) {
            count += 1
            if count < 3 { return }
            token?.cancel()
            // The run ends by itself: the timer was the mode's last item.
        }
        #expect(loop.run(for: patience) == .finished)
        #expect(count == 3)
    }

    @Test func `values of other threads are received on the loop's thread, in order`() throws {
        let loop = RunLoop.current
        let subject = PassthroughSubject<Int, Never>()
        var received: [Int] = []
        var areOnTheLoop = true
        let subscription = subject.receive(on: loop).sink { value in
            received.append(value)
            areOnTheLoop = areOnTheLoop && loop.isCurrent
            if value == 999 { loop.stop() }
        }
        let keepAlive = loop.keepAlive()
        let thread = try RunLoopThread(name: "sender")
        thread.runLoop.perform { for value in 0..<1_000 { subject.send(value) } }
        let start = RunLoop.Instant.now
        #expect(loop.run(for: patience) == .stopped)
        #expect(start.duration(to: .now) < patience, "the loop is woken")
        thread.stop()
        #expect(received == Array(0..<1_000) && areOnTheLoop)
        withExtendedLifetime((subscription, keepAlive)) {}
    }

    @Test func `debounce delivers the last value of a burst`() {
        let loop = RunLoop.current
        let subject = PassthroughSubject<Int, Never>()
        var received: [Int] = []
        let subscription = subject.debounce(for: .milliseconds(5), scheduler: loop).sink { value in
            received.append(value)
            loop.stop()
        }
        for value in 1...5 { subject.send(value) }
        #expect(loop.run(for: patience) == .stopped)
        #expect(received == [5])
        withExtendedLifetime(subscription) {}
    }

    @Test func `delay moves values and the completion`() {
        let loop = RunLoop.current
        var trace: [String] = []
        let start = Date()
        let subscription = [1, 2].publisher.delay(for: .milliseconds(5), scheduler: loop).sink { _ in
            trace.append("end")
            loop.stop()
        } receiveValue: {
            trace.append("\($0)")
        }
        #expect(trace.isEmpty)
        #expect(loop.run(for: patience) == .stopped)
        #expect(trace == ["1", "2", "end"] && Date().timeIntervalSince(start) >= 0.005)
        withExtendedLifetime(subscription) {}
    }

    @Test func `a timeout ends a publisher that is silent`() {
        let loop = RunLoop.current
        let subject = PassthroughSubject<Int, Never>()
        var isFinished = false
        let subscription = subject.timeout(.milliseconds(5), scheduler: loop).sink { _ in
            isFinished = true
            loop.stop()
        } receiveValue: { _ in
        }
        let keepAlive = loop.keepAlive()
        #expect(loop.run(for: patience) == .stopped)
        #expect(isFinished)
        withExtendedLifetime((subscription, keepAlive)) {}
    }
}

@Suite(.serialized) struct TimerPublisherTests {
    @Test func `a connected timer publishes to all subscribers until it is cancelled`() {
        let loop = RunLoop.current
        let publisher = Timer.publish(every: 0.002, on: loop, in: .default)
        var (first, second) = (0, 0)
        var connection: (any Cancellable)?
        let subscriptions = [
            publisher.sink { _ in first += 1 },
            publisher.sink { _ in
                second += 1
                if second == 3 { connection?.cancel() }
            },
        ]
        connection = publisher.connect()
        #expect(loop.run(for: patience) == .finished)
        // The subscribers are called in no particular order.
        #expect((2...3).contains(first) && second == 3)
        withExtendedLifetime(subscriptions) {}
    }

    @Test func `a publisher that nobody connects publishes nothing`() {
        let loop = RunLoop.current
        var count = 0
        let subscription = Timer.publish(every: 0.001, on: loop, in: .default).sink { _ in count += 1 }
        #expect(loop.run(for: .zero) == .finished)
        #expect(count == 0)
        withExtendedLifetime(subscription) {}
    }

    @Test func `autoconnect connects with the first subscriber, and a prefix ends the timer`() {
        let loop = RunLoop.current
        var dates: [Date] = []
        let subscription = Timer.publish(every: 0.002, on: loop, in: .common).autoconnect().prefix(4).sink { dates.append($0) }
        #expect(loop.run(for: patience) == .finished)
        #expect(dates.count == 4 && dates == dates.sorted())
        withExtendedLifetime(subscription) {}
    }

    @Test func `a timer in another mode does not publish`() {
        let loop = RunLoop.current
        var count = 0
        let publisher = Timer.publish(every: 0.001, on: loop, in: "other")
        let subscription = publisher.sink { _ in
            count += 1
            loop.stop()
        }
        let connection = publisher.connect()
        #expect(loop.run(for: .zero) == .finished && count == 0)
        #expect(loop.run(mode: "other", for: patience) == .stopped && count == 1)
        connection.cancel()
        withExtendedLifetime(subscription) {}
    }
}
