#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

// Glibc's overlay does not declare it.
@_silgen_name("openpty") private func systemOpenpty(
    _ controller: UnsafeMutablePointer<Int32>, _ terminal: UnsafeMutablePointer<Int32>, _ name: UnsafeMutablePointer<CChar>?,
    _ attributes: UnsafePointer<termios>?, _ size: UnsafePointer<winsize>?
) -> Int32

/// A terminal and its controlling side. The caller closes both.
func makeTerminal() -> (controller: Int32, terminal: Int32) {
    var (controller, terminal): (Int32, Int32) = (-1, -1)
    precondition(systemOpenpty(&controller, &terminal, nil, nil, nil) == 0, "openpty: errno \(errno)")
    return (controller, terminal)
}
