// Descriptors that cannot be watched (semantics 4.5, 4.6). The initializer of a source asks the kernel:
//  - Not open, negative or out of range: badDescriptor. Open, but never ready (a regular file, a directory, /dev/null): notPollable.
//  - A source accepts every descriptor that the kernel accepts. There is no list of kinds.
//  - libevent's own warnings do not reach standard error.

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.memory)) struct DescriptorRefusalTests {
    private typealias Source = RunLoop.DescriptorSource

    private static func errorOfWatching(_ descriptor: Int32, _ events: RunLoop.DescriptorSource.Events) -> RunLoop.SourceError? {
        do throws(RunLoop.SourceError) {
            let source = try RunLoop.DescriptorSource(descriptor: descriptor, events: events) { _, _ in }
            source.invalidate()
            return nil
        } catch {
            return error
        }
    }

    @Test(arguments: [-1, -2, .min, .max, 1_000_000_000] as [Int32])
    func `a negative or out-of-range descriptor is a bad descriptor`(descriptor: Int32) {
        #expect(Self.errorOfWatching(descriptor, .read) == .badDescriptor(descriptor))
    }

    @Test func `a descriptor that is not open is a bad descriptor`() {
        // A high number that no other test's files get.
        let pipe = Pipe()
        let descriptor = fcntl(pipe.readEnd, F_DUPFD_CLOEXEC, 600)
        #expect(Self.errorOfWatching(descriptor, .read) == nil)
        close(descriptor)
        #expect(Self.errorOfWatching(descriptor, .read) == .badDescriptor(descriptor))
        #expect(Self.errorOfWatching(descriptor, []) == .badDescriptor(descriptor))
    }

    @Test(arguments: [RunLoop.DescriptorSource.Events.read, .write, .closed, [.read, .write, .closed], []])
    func `a regular file, a directory and the null device are not pollable`(events: RunLoop.DescriptorSource.Events) throws {
        var template = Array("/tmp/eventloop-test-XXXXXX".utf8CString)
        let file = mkstemp(&template)
        try #require(file >= 0)
        unlink(template)
        let directory = open("/", O_RDONLY | O_CLOEXEC)
        let null = open("/dev/null", O_RDWR | O_CLOEXEC)
        defer { for descriptor in [file, directory, null] { close(descriptor) } }
        #expect(Self.errorOfWatching(file, events) == .notPollable(file))
        #expect(Self.errorOfWatching(directory, events) == .notPollable(directory))
        #expect(Self.errorOfWatching(null, events) == .notPollable(null))
    }

    @Test func `making a source on standard input throws at once if standard input is the null device`() async {
        await #expect(processExitsWith: .success) {
            let null = open("/dev/null", O_RDONLY)
            #expect(dup2(null, 0) == 0)
            #expect(DescriptorRefusalTests.errorOfWatching(0, .read) == .notPollable(0))
        }
    }

    @Test func `pipes, sockets and listeners are accepted`() throws {
        let pipe = Pipe()
        let pair = SocketPair()
        let (udp, tcp) = (socket(AF_INET, SocketKind.datagram, 0), socket(AF_INET, SocketKind.stream, 0))
        defer {
            close(udp)
            close(tcp)
        }
        try #require(listen(tcp, 1) == 0)
        for descriptor in [pipe.readEnd, pipe.writeEnd, pair.near, udp, tcp] {
            for events in [.read, .write, .closed, []] as [RunLoop.DescriptorSource.Events] {
                #expect(Self.errorOfWatching(descriptor, events) == nil)
            }
        }
        withExtendedLifetime((pipe, pair)) {}
    }

    @Test func `asking the kernel leaves no registration behind: a dropped source is never called`() throws {
        let trace = try inManualTime { loop, _, trace in
            trace.observe(loop)
            let pipe = Pipe()
            _ = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in trace.add("dropped") }
            pipe.write()
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            trace.add("-> \(loop.run(until: .ms(10)))")
            return withExtendedLifetime(pipe) { trace.description }
        }
        #expect(trace == "E T S W A X -> timedOut")
    }

    @Test func `libevent's warnings do not reach standard error`() async throws {
        // libevent warns when a callback re-enters its own base.
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            let status = try onFreshThread { loop in
                let status = Box<Int32>(0)
                let pipe = Pipe()
                let event = loop.withEventBase { base in
                    ForeignEvent(base, pipe.readEnd, EV_READ) { event in
                        status.value = event_base_loop(event.base, EVLOOP_NONBLOCK)
                    }
                }
                event.add()
                pipe.write()
                _ = loop.run(for: .zero)
                event.free()
                return status.value
            }
            #expect(status == -1)
        }
        let errors = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(errors == "")
    }
}
