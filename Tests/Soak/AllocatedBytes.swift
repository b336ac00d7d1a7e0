// Part of eventloop-soak and, by a symbolic link, of the tests' support.

#if canImport(Glibc)
import Glibc

// The Glibc module does not include this function's header.
@_silgen_name("malloc_info") private func mallocInfo(_ options: Int32, _ stream: UnsafeMutablePointer<FILE>) -> Int32

/// The memory that the allocator has from the system, minus its free memory. The totals of all arenas are at the end of the report.
func allocatedBytes() -> Int {
    var text: UnsafeMutablePointer<CChar>?
    var length = 0
    guard let stream = open_memstream(&text, &length) else { return 0 }
    _ = mallocInfo(0, stream)
    fclose(stream)
    defer { free(text) }
    let report = text.map { String(cString: $0) } ?? ""
    func last(_ element: String) -> Int {
        guard let line = report.split(separator: "\n").last(where: { $0.hasPrefix(element) }) else { return 0 }
        return line.split(separator: "\"").last { Int($0) != nil }.flatMap { Int($0) } ?? 0
    }
    return last("<system type=\"current\"") + last("<total type=\"mmap\"") - last("<total type=\"fast\"") - last("<total type=\"rest\"")
}
#else
/// Only glibc says how much is allocated in all.
func allocatedBytes() -> Int { 0 }
#endif
