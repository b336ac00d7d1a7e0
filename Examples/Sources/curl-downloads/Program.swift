// Downloads pages at the same time, on the loop of one thread, and ends with the last one.
//
//   curl-downloads URL…

import EventLoop

@main
enum Program {
    static func main() throws {
        let addresses = CommandLine.arguments.dropFirst()
        let thread = try RunLoopThread(
            name: "downloads", drainLimit: .seconds(60),
            setup: { loop in
                let downloads = try Downloads(on: loop)
                for address in addresses { downloads.start(address) { print("\(address): \($0)") } }
                return downloads
            },
            teardown: { _, downloads in downloads.free() })
        // Each download holds the thread.
        thread.stop()
        thread.join()
    }
}
