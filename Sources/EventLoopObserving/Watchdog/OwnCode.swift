// Which functions of a backtrace are the program's own. A log line has room for a few, and those are what its reader looks for.

enum OwnCode {
    /// The modules of this package that are in the stack of every callout.
    private static let modules: Set<String> = [
        "EventLoop", "EventLoopCF", "EventLoopDatagrams", "EventLoopFoundation", "EventLoopHTTP", "EventLoopLogging",
        "EventLoopMessagePorts",
        "EventLoopMetrics",
        "EventLoopNIO", "EventLoopObserving", "EventLoopServiceLifecycle", "EventLoopSimulation", "EventLoopStreams", "EventLoopSupervisor",
        "EventLoopTLS", "EventLoopTesting", "EventLoopXCTest", "Foundation", "FoundationEssentials", "Dispatch",
    ]

    private static let libraries = [
        "libc.", "libc-", "ld-", "libm.", "libpthread", "libstdc++", "libgcc", "libevent", "libswift", "libFoundation", "lib_Foundation",
        "libdispatch", "libBlocksRuntime", "libssl", "libcrypto", "linux-vdso", "[vdso]",
    ]

    /// Functions in C that are in the program's file if it is linked statically.
    private static let functions = [
        "swift_", "_swift", "cplatform_", "cstacks_", "cstreams_", "cdatagrams_", "csim_", "chost_passes_", "event_", "evmap_", "epoll_",
        "_start", "__libc_", "start_thread", "clone",
    ]

    /// `function` as the symbol table has it, mangled. A function without a name is not the program's own: nothing is known of it.
    static func contains(function: String?, in image: String?) -> Bool {
        guard let function, let image, !libraries.contains(where: { image.hasPrefix($0) }) else { return false }
        guard let mangled = ["$s", "_$s", "$S"].first(where: { function.hasPrefix($0) }) else {
            return !functions.contains { function.hasPrefix($0) }
        }
        // The name of the module comes first, after its length. The standard library has a letter there, and a thunk a type.
        let rest = function.dropFirst(mangled.count)
        let digits = rest.prefix { $0.isASCII && $0.isNumber }
        guard let length = Int(digits), length > 0 else { return false }
        return !modules.contains(String(rest.dropFirst(digits.count).prefix(length)))
    }
}
