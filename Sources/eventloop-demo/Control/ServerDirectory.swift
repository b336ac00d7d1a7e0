// Which servers of this user run.
//
// A server's control port is named after its TCP port, and every named port is a file in the directories that docs/message-ports.md names.
// A file may be left over from a server that was killed, so only a connection shows which.

import EventLoop

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

enum ServerDirectory {
    private static let prefix = "eventloop-demo-"

    static func name(port: UInt16) -> String { prefix + String(port) }

    /// The names of the servers that run, in the order of their ports, with connections. Servers with names of their own are not found.
    static func running() -> [(name: String, remote: RunLoop.RemoteMessagePort)] {
        var ports = Set<UInt16>()
        for directory in directories {
            for file in files(in: directory) where file.hasPrefix(prefix) {
                if let port = UInt16(file.dropFirst(prefix.count)) { ports.insert(port) }
            }
        }
        return ports.sorted().compactMap { port in
            (try? RunLoop.RemoteMessagePort(name: name(port: port))).map { (name(port: port), $0) }
        }
    }

    private static var directories: [String] {
        if let only = Process.environment("EVENTLOOP_PORT_DIRECTORY"), !only.isEmpty { return [only] }
        let runtime = Process.environment("XDG_RUNTIME_DIR").map { [$0 + "/eventloop-ports"] } ?? []
        return runtime + ["/run/user/\(Process.userID)/eventloop-ports", "/tmp/eventloop-ports-\(Process.userID)"]
    }

    private static func files(in directory: String) -> [String] {
        guard let stream = opendir(directory) else { return [] }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {  // ends: the directory is finite
            let capacity = MemoryLayout.size(ofValue: entry.pointee.d_name)
            names.append(
                withUnsafePointer(to: &entry.pointee.d_name) {
                    $0.withMemoryRebound(to: CChar.self, capacity: capacity) { String(cString: $0) }
                })
        }
        return names
    }
}
