// Rules proved here (semantics 9.14, 9.15): a process runs short of descriptors. Functions that can throw throw `SourceError.system`. The
// rest continues: timers, performs, stops, limits and sources in every mode, including a mode that has never run.
//
// Each case runs in a process of its own, started by the probe (Tests/FaultProbe): once a second, Dispatch counts its threads in /proc, and
// it ends a process that cannot open a file.

#if os(Linux)

import CLibevent
import EventLoop
import EventLoopTestSupport
import Glibc
import Testing

@Suite struct `A process that runs short of descriptors` {
    @Test func `every scenario with every limit of 4 to 64 descriptors works or throws`() throws {
        try expectSuccess("limits")
    }

    @Test func `a loop without a free descriptor serves everything, and makes its bases as soon as there is room`() throws {
        try expectSuccess("full")
    }

    @Test func `a fatal error of libevent that the library cannot handle ends the process with libevent's last message`() async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { $0.withEventBase { _ in } }
            // Calls libevent directly, which cannot make its pipe.
            var limit = rlimit(rlim_cur: 0, rlim_max: 0)
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            _ = event_base_new()
        }
        let errors = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(errors.contains("libevent gave up with code 1: evsig_init_: socketpair: Too many open files"), "\(errors)")
    }

    private func expectSuccess(_ what: String) throws {
        let (status, said) = try runProbe("eventloop-fault-probe", what)
        #expect(status == 0, "eventloop-fault-probe \(what): status \(status)\n\(said)")
    }
}

#endif
