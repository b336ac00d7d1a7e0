// Reads the wall clock.

import EventLoopLibC

/// Nanoseconds since January 1, 2001.
func wallNanoseconds() -> Int64 {
    // The first module that the compiler reads provides the members of `timespec`, and which one is first varies with the files of a compile
    // job. These are its two words.
    var time = (seconds: 0, nanoseconds: 0)
    withUnsafeMutablePointer(to: &time) {
        $0.withMemoryRebound(to: timespec.self, capacity: 1) { _ = clock_gettime(CLOCK_REALTIME, $0) }
    }
    return (Int64(time.seconds) - 978_307_200) * 1_000_000_000 + Int64(time.nanoseconds)
}
