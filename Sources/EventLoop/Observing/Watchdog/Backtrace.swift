// The backtrace of a thread that another thread looks at, as text.

internal import CPlatform

enum Backtrace {
    /// How long a running thread may take to answer: it has to get a processor.
    private static let patience: Int32 = 100

    /// The lines of the backtrace, innermost frame first. Empty if the thread has ended, does not answer, or cannot be looked at. Thread-safe.
    ///
    /// A thread that sleeps in a system call is not disturbed: the call is the first line. The kernel is asked first, and the signal is
    /// sent after that, so a thread that begins a call in between may have it return early.
    static func lines(of thread: Int32) -> [String] {
        var activity = cplatform_thread_activity()
        cplatform_thread_activity(thread, &activity)
        var stack = cplatform_stack()
        switch Int(activity.kind) {
        case CPLATFORM_THREAD_RUNNING:
            return cplatform_interrupt_for_stack(thread, patience, &stack) ? lines(stack, after: nil) : []
        case CPLATFORM_THREAD_IN_CALL:
            _ = cplatform_read_sleeping_stack(thread, &activity, &stack)
            return lines(stack, after: describe(activity))
        default:
            return []
        }
    }

    private static func describe(_ activity: cplatform_thread_activity) -> String {
        var activity = activity
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 128) { text in
            cplatform_describe_call(&activity, text.baseAddress, text.count)
            return String(cString: text.baseAddress!)  // 128 bytes were asked for
        }
    }

    private static func lines(_ stack: cplatform_stack, after call: String?) -> [String] {
        var stack = stack
        let count = Int(stack.count)
        // A return address is behind the call, perhaps in the next function.
        let looked = (0..<count).map { cplatform_stack_frame(&stack, Int32($0)) &- ($0 == 0 ? 0 : 1) }
        var symbols = [cplatform_symbol](repeating: cplatform_symbol(), count: count)
        cplatform_symbolize(looked, Int32(count), &symbols)
        defer { for index in symbols.indices { cplatform_free_symbol(&symbols[index]) } }
        var lines = call.map { ["#0 \($0)"] } ?? []
        for (index, symbol) in symbols.enumerated() {
            let isUncertain = cplatform_stack_is_uncertain(&stack, Int32(index))
            lines.append("#\(lines.count) \(isUncertain ? "? " : "")\(text(of: symbol))")
        }
        return lines
    }

    /// `handle(_:) + 42 (server+0x1a2b)`.
    private static func text(of symbol: cplatform_symbol) -> String {
        let address = "0x" + String(symbol.address, radix: 16)
        guard let image = symbol.image.map({ String(cString: $0) }) else { return address }
        guard let name = symbol.name else { return "\(address) (\(image)+\(address))" }
        return "\(demangled(name)) + \(symbol.offset) (\(image)+\(address))"
    }

    private static func demangled(_ name: UnsafePointer<CChar>) -> String {
        guard let readable = cplatform_demangle(name) else { return String(cString: name) }
        defer { cplatform_free_text(readable) }
        return String(cString: readable)
    }
}
