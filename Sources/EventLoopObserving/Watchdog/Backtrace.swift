// The backtrace of a thread that another thread looks at, as text.

internal import CStacks
internal import EventLoop

enum Backtrace {
    /// How long a running thread may take to answer: it has to get a processor.
    private static let patience: Int32 = 100

    struct Frame {
        var line: String
        /// The program's own code.
        var isOwn: Bool
    }

    private static let mostInSummary = 8

    /// The lines for a log: first those of the program's own code.
    static func summary(_ frames: [Frame]) -> [String] {
        (frames.filter(\.isOwn) + frames.filter { !$0.isOwn }).prefix(mostInSummary).map(\.line)
    }

    /// The lines of the backtrace, innermost frame first. Empty if the thread has ended, does not answer, or cannot be looked at. Thread-safe.
    ///
    /// A thread that sleeps in a system call is not disturbed: the call is the first line. The kernel is asked first, and the signal is
    /// sent after that, so a thread that begins a call in between may have it return early.
    static func lines(of thread: Int32) -> [String] { frames(of: thread).map(\.line) }

    static func frames(of thread: Int32) -> [Frame] {
        var activity = cstacks_thread_activity()
        cstacks_thread_activity(thread, &activity)
        var stack = cstacks_stack()
        switch Int(activity.kind) {
        case CSTACKS_THREAD_RUNNING:
            return cstacks_interrupt_for_stack(thread, patience, &stack) ? frames(stack, after: nil) : []
        case CSTACKS_THREAD_IN_CALL:
            _ = cstacks_read_sleeping_stack(thread, &activity, &stack)
            return frames(stack, after: describe(activity))
        default:
            return []
        }
    }

    private static func describe(_ activity: cstacks_thread_activity) -> String {
        var activity = activity
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 128) { text in
            cstacks_describe_call(&activity, text.baseAddress, text.count)
            return String(cString: text.baseAddress!)  // 128 bytes were asked for
        }
    }

    private static func frames(_ stack: cstacks_stack, after call: String?) -> [Frame] {
        var stack = stack
        let count = Int(stack.count)
        // A return address is behind the call, perhaps in the next function.
        let looked = (0..<count).map { cstacks_stack_frame(&stack, Int32($0)) &- ($0 == 0 ? 0 : 1) }
        var symbols = [cstacks_symbol](repeating: cstacks_symbol(), count: count)
        cstacks_symbolize(looked, Int32(count), &symbols)
        defer { for index in symbols.indices { cstacks_free_symbol(&symbols[index]) } }
        var frames = call.map { [Frame(line: "#0 \($0)", isOwn: false)] } ?? []
        for (index, symbol) in symbols.enumerated() {
            let isUncertain = cstacks_stack_is_uncertain(&stack, Int32(index))
            let isOwn = OwnCode.contains(function: symbol.name.map { String(cString: $0) }, in: symbol.image.map { String(cString: $0) })
            frames.append(Frame(line: "#\(frames.count) \(isUncertain ? "? " : "")\(text(of: symbol))", isOwn: isOwn))
        }
        return frames
    }

    /// `handle(_:) + 42 (server+0x1a2b)`.
    private static func text(of symbol: cstacks_symbol) -> String {
        let address = "0x" + String(symbol.address, radix: 16)
        guard let image = symbol.image.map({ String(cString: $0) }) else { return address }
        guard let name = symbol.name else { return "\(address) (\(image)+\(address))" }
        return "\(demangled(name)) + \(symbol.offset) (\(image)+\(address))"
    }

    private static func demangled(_ name: UnsafePointer<CChar>) -> String {
        guard let readable = cstacks_demangle(name) else { return String(cString: name) }
        defer { cstacks_free_text(readable) }
        return String(cString: readable)
    }
}
