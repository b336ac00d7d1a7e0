// One process has one libevent (decision 35):
//  - libevent's library "event" holds what event_core and event_extra hold. A program that links "event" and something that loads
//    event_core (event_pthreads, event_openssl, libevent.pc of 2.2) has two copies of everything, with two sets of global state.

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

#if os(Linux)
import Glibc

@Suite(.bounded, .tags(.memory)) struct OneLibeventTests {
    /// The shared libraries of this process that contain libevent's core.
    private static func loadedCores() throws -> [String] {
        let file = try #require(fopen("/proc/self/maps", "re"))
        defer { fclose(file) }
        var paths: Set<String> = []
        var line = [CChar](repeating: 0, count: 8192)
        while fgets(&line, Int32(line.count), file) != nil {
            let text = String(decoding: line.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
            guard let slash = text.firstIndex(of: "/") else { continue }
            let path = text[slash...].prefix { $0 != "\n" }
            let name = path.split(separator: "/").last ?? ""
            if ["libevent-", "libevent.", "libevent_core"].contains(where: { name.hasPrefix($0) }) { paths.insert(String(path)) }
        }
        return paths.sorted()
    }

    /// The test bundle also contains the benchmarks, which link libevent_pthreads.
    @Test func `the process has one copy of libevent`() throws {
        let cores = try Self.loadedCores()
        // None if libevent is linked statically.
        #expect(cores.count <= 1, "\(cores)")
    }

    @Test func `the libevent that was loaded is of the series that the headers are of`() {
        // event.h: the high byte is the major version, the next one the minor version.
        #expect(event_get_version_number() >> 16 == UInt32(LIBEVENT_VERSION_NUMBER) >> 16)
    }
}
#endif
