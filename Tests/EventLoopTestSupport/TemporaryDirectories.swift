// Directories that tests make and remove.

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A new directory with a short name in `parent`, or where the system keeps such.
public func makeTemporaryDirectory(in parent: String? = nil) -> String {
    let parent = parent ?? getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
    var template = Array("\(parent)/eventloop-XXXXXX".utf8CString)
    precondition(mkdtemp(&template) != nil, "mkdtemp: errno \(errno)")
    return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
}

/// Removes a directory that has only files in it.
public func removeFlatDirectory(_ path: String) {
    for name in filesIn(path) { unlink(path + "/" + name) }
    rmdir(path)
}

/// The names of the files in a directory, sorted.
public func filesIn(_ path: String) -> [String] {
    guard let stream = opendir(path) else { return [] }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {  // ends: the directory does
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        if name != "." && name != ".." { names.append(name) }
    }
    return names.sorted()
}
