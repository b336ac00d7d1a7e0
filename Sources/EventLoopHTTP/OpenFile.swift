// A file that is sent.
//
// Lifecycle of the descriptor: opened by `init`, closed with the object.

#if HTTP

internal import CPlatform
internal import EventLoopLibC

/// Why a file is not sent.
enum FileError: Error, CustomStringConvertible {
    /// There is none, or it is no regular file.
    case missing
    case system(String)

    var description: String {
        switch self {
        case .missing: "there is no such file"
        case .system(let reason): reason
        }
    }
}

final class OpenFile: Sendable {
    let size: Int
    let descriptor: Int32

    /// So much is read at a time.
    static var pieceSize: Int { 65_536 }

    init(_ path: String) throws(FileError) {
        // The kernel would take the part before a NUL for the path.
        if path.utf8.contains(0) { throw .missing }
        // A FIFO without a writer must not block, and a terminal must not become this process's.
        descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        if descriptor < 0 {
            switch errno {
            case ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, ENXIO, ENODEV: throw .missing
            default: throw .system("open: " + String(cString: strerror(errno)))
            }
        }
        var status = stat()
        let isRegular = fstat(descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFREG
        size = Int(status.st_size)
        // The object is whole, so deinit closes the descriptor.
        if !isRegular { throw .missing }
    }

    deinit { cplatform_close(descriptor) }

    /// Bytes from `offset` on. If the file has become shorter, throws: its length was promised.
    func read(upTo count: Int, from offset: Int) throws -> [UInt8] {
        try [UInt8](unsafeUninitializedCapacity: count) { space, filled in
            while filled < count {  // ends: each iteration reads something or throws
                let result = pread(descriptor, space.baseAddress.unsafelyUnwrapped + filled, count - filled, off_t(offset + filled))
                if result < 0 && errno == EINTR { continue }
                if result < 0 { throw FileError.system("pread: " + String(cString: strerror(errno))) }
                if result == 0 { throw FileError.system("the file has become shorter while it was sent") }
                filled += result
            }
        }
    }

    /// For files that browsers load, by the end of their names.
    static func contentType(of path: String) -> String? {
        guard let dot = path.utf8.lastIndex(of: UInt8(ascii: ".")) else { return nil }
        switch path[path.utf8.index(after: dot)...].lowercased() {
        case "html", "htm": return "text/html; charset=utf-8"
        case "css": return "text/css; charset=utf-8"
        case "js", "mjs": return "text/javascript; charset=utf-8"
        case "json": return "application/json"
        case "txt": return "text/plain; charset=utf-8"
        case "svg": return "image/svg+xml"
        case "png": return "image/png"
        case "jpg", "jpeg": return "image/jpeg"
        case "gif": return "image/gif"
        case "webp": return "image/webp"
        case "ico": return "image/x-icon"
        case "pdf": return "application/pdf"
        case "wasm": return "application/wasm"
        case "woff2": return "font/woff2"
        default: return nil
        }
    }
}

#endif
