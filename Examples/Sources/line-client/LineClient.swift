// Sends the lines of its standard input to a server, and prints the lines that come from there.
//
//   line-client HOST PORT
//   line-client PATH               a Unix socket
//
// At the end of its input it finishes writing, and prints what still comes. So `line-client HOST PORT <file` gets every answer.

import EventLoop
import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@main
enum LineClient {
    static func main() async throws {
        RunLoop.adoptAsyncMain()
        let words = CommandLine.arguments.dropFirst()
        guard let place = words.first, words.count < 3 else { return print("usage: line-client HOST PORT | line-client PATH") }
        let server =
            if let port = words.dropFirst().first.flatMap({ UInt16($0) }) {
                try await ByteStream.connect(host: place, port: port, on: .main)
            } else {
                try await ByteStream.connect(to: .unix(path: place), on: .main)
            }

        // The stream closes its descriptors. With copies, `print` keeps the program's own.
        let terminal = try ByteStream(reading: dup(0), writing: dup(1), on: .main)
        defer { terminal.close() }

        // One task for each direction. The server's end ends the program; the end of the input does not.
        let sending = Task {
            for try await line in terminal.lines() { try await server.write(line + "\n") }
            try await server.finishWriting()
        }
        for try await line in server.lines() { try await terminal.write(line + "\n") }
        sending.cancel()
        try await terminal.finishWriting()
    }
}
