// Directories that tests make and remove.

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Creates a directory with a short name in `parent`, or in the system's directory for temporary files.
public func makeTemporaryDirectory(in parent: String? = nil) -> String {
    let parent = parent ?? getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
    var template = Array("\(parent)/eventloop-XXXXXX".utf8CString)
    precondition(mkdtemp(&template) != nil, "mkdtemp: errno \(errno)")
    return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
}

/// Removes a directory that contains only files.
public func removeFlatDirectory(_ path: String) {
    for name in filesIn(path) { unlink(path + "/" + name) }
    rmdir(path)
}

/// The names of the files in a directory, sorted.
public func filesIn(_ path: String) -> [String] {
    guard let stream = opendir(path) else { return [] }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {  // ends: the directory is finite
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        if name != "." && name != ".." { names.append(name) }
    }
    return names.sorted()
}

/// The working directory of an exit test, a new one until `leave`.
///
/// The paths in a sanitizer's settings are relative to the directory in which the tests were started, and are used when the process ends.
public struct OwnDirectory: Sendable {
    public let path = makeTemporaryDirectory()
    private let origin = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)

    public init() { precondition(origin >= 0 && chdir(path) == 0, "errno \(errno)") }

    /// Goes back, wherever the process is by then, and removes the directory with its files.
    public func leave() {
        precondition(fchdir(origin) == 0, "errno \(errno)")
        close(origin)
        removeFlatDirectory(path)
    }
}
