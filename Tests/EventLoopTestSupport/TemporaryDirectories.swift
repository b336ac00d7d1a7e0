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
