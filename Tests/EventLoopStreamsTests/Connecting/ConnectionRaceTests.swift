// Rules proved here (ConnectionRace.swift; RFC 8305, sections 4 and 5):
// - The families take turns, beginning with the first address's. Each keeps its order.
// - Attempts start in order: each when the delay after the one before has passed, or when an attempt has failed.
// - The race fails when every attempt has failed, and not before, with the most telling error.

import EventLoop
import Testing

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

typealias SocketAddress = RunLoop.SocketAddress

private func addresses(_ names: String) -> [SocketAddress] {
    names.split(separator: " ").map { $0.first == "6" ? .ipv6(host: String($0), port: 1) : .ipv4(host: String($0), port: 1) }
}

private func names(_ addresses: [SocketAddress]) -> String {
    addresses.map {
        switch $0 {
        case .ipv4(let host, _), .ipv6(let host, _), .unix(let host): host
        }
    }.joined(separator: " ")
}

private func error(_ code: Int32) -> RunLoop.SourceError { .system(operation: "connect", errno: code) }

@Suite struct ConnectionRaceTests {
    @Test(arguments: [
        ("6a 6b 6c 4a 4b", "6a 4a 6b 4b 6c"), ("4a 4b 6a", "4a 6a 4b"), ("4a 6a 6b 6c", "4a 6a 6b 6c"), ("6a", "6a"), ("", ""),
        ("4a 4b 4c", "4a 4b 4c"), ("6a 4a 4b 6b", "6a 4a 6b 4b"),
    ])
    func `the families take turns, beginning with the first address's`(list: String, order: String) {
        #expect(names(ConnectionRace.interleaved(addresses(list))) == order)
    }

    @Test func `the next attempt starts after the delay, and at once after a failure`() {
        var race = ConnectionRace(addresses("6a 4a 6b"))
        let steps = [
            race.begin(), race.delayHasPassed(), race.attempt(0, failedWith: error(ECONNREFUSED)), race.delayHasPassed(),
            race.attempt(2, failedWith: error(ECONNRESET)), race.attempt(1, failedWith: error(EPIPE)),
        ]
        #expect(
            steps == [
                .start(attempt: 0, delays: true), .start(attempt: 1, delays: true), .start(attempt: 2, delays: false), .wait, .wait,
                .fail(error(ECONNREFUSED)),
            ])
    }

    @Test func `after the limit no attempt starts`() {
        var race = ConnectionRace(addresses("6a 4a"))
        let first = race.begin()
        let isIdle = race.close()
        let steps = [first, race.delayHasPassed(), race.attempt(0, failedWith: error(ETIMEDOUT))]
        #expect(steps == [.start(attempt: 0, delays: true), .wait, .fail(error(ETIMEDOUT))] && !isIdle)
    }

    @Test(arguments: [
        ([ENETUNREACH, ECONNREFUSED, ETIMEDOUT], ECONNREFUSED), ([EADDRNOTAVAIL, EHOSTUNREACH, ENETUNREACH], EADDRNOTAVAIL),
        ([ETIMEDOUT, ECONNREFUSED, ENETUNREACH], ETIMEDOUT), ([EAFNOSUPPORT, EMFILE, ECONNREFUSED], EMFILE),
    ])
    func `of all errors the first is thrown that is more than the lack of a route`(codes: [Int32], thrown: Int32) {
        // In whatever order the attempts fail.
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
            var race = ConnectionRace(addresses("4a 4b 4c"))
            _ = (race.begin(), race.delayHasPassed(), race.delayHasPassed())
            var steps: [ConnectionRace.Step] = []
            for attempt in order { steps.append(race.attempt(attempt, failedWith: error(codes[attempt]))) }
            #expect(steps == [.wait, .wait, .fail(error(thrown))])
        }
    }

    @Test(arguments: 1...4)
    func `every order of delays and failures keeps the rules`(count: Int) {
        var cases = 0
        // A play is a list of choices among the events that are possible: the delay passes, or one of the attempts fails.
        func play(_ race: ConnectionRace, started: Int, running: Set<Int>, delays: Bool, _ step: ConnectionRace.Step) {
            cases += 1
            var (started, running, delays) = (started, running, delays)
            switch step {
            case .start(let attempt, let next):
                #expect(attempt == started && attempt < count)
                started += 1
                running.insert(attempt)
                delays = next
                #expect(next == (started < count))
            case .wait: #expect(!running.isEmpty)
            case .fail(let thrown):
                #expect(running.isEmpty && started == count)
                #expect(thrown == error(1000))
                return
            }
            if delays {
                var next = race
                // The delay that was asked for last passes once.
                let step = next.delayHasPassed()
                if case .start = step {} else { Issue.record("the delay starts nothing, and was asked for") }
                play(next, started: started, running: running, delays: false, step)
            }
            for attempt in running {
                var next = race
                let step = next.attempt(attempt, failedWith: error(1000 + Int32(attempt)))
                if started < count { #expect(step == .start(attempt: started, delays: started + 1 < count)) }
                play(next, started: started, running: running.subtracting([attempt]), delays: delays, step)
            }
        }
        var race = ConnectionRace((0..<count).map { .ipv4(host: "\($0)", port: 1) })
        let step = race.begin()
        play(race, started: 0, running: [], delays: false, step)
        #expect(cases >= count)
    }
}
