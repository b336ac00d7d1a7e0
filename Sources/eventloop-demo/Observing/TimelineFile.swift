// The timeline that `make run` leaves behind.

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

enum TimelineFile {
    /// Writes a page into a file that only this user can read. Nil if the file cannot be written.
    ///
    /// Without a path, makes a new file in the folder for temporary files: a fixed name there could be somebody else's link.
    static func write(_ text: String, to path: String?) -> String? {
        let (descriptor, path) = path.map { (open($0, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600), $0) } ?? makeTemporary()
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var text = text
        let isWritten = text.withUTF8 { bytes in
            var rest = UnsafeRawBufferPointer(bytes)
            while !rest.isEmpty {  // ends: each turn writes some of it
                let count = writeSome(descriptor, rest)
                if count < 0 && errno == EINTR { continue }
                if count <= 0 { return false }
                rest = UnsafeRawBufferPointer(rebasing: rest[count...])
            }
            return true
        }
        return isWritten ? path : nil
    }

    private static func makeTemporary() -> (Int32, String) {
        let folder = Process.environment("TMPDIR") ?? "/tmp"
        var template = Array("\(folder)/eventloop-timeline-XXXXXX.html".utf8CString)
        // Five characters follow the ones that mkstemps replaces.
        let descriptor = mkstemps(&template, 5)
        return (descriptor, String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self))
    }
}

private func writeSome(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> Int { write(descriptor, bytes.baseAddress, bytes.count) }
