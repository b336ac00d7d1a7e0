// Names of functions, for reports.

internal import CSimulation
internal import CStacks
import Synchronization

enum Symbols {
    private static let known = Mutex<[UInt: String?]>([:])

    /// The name of the function at an address, in the words of the source; nil if it has none, or if it is not the program's.
    static func name(_ address: UnsafeMutableRawPointer) -> String? {
        let key = UInt(bitPattern: address)
        if let name = known.withLock({ $0[key] }) { return name }
        // Reading symbol tables is no part of the simulated program.
        let run = csim_current()
        csim_enter(nil)
        let name = lookUp(UInt64(key))
        csim_enter(run)
        known.withLock { $0[key] = name }
        return name
    }

    private static func lookUp(_ address: UInt64) -> String? {
        var (address, symbol) = (address, cstacks_symbol())
        cstacks_symbolize(&address, 1, &symbol)
        defer { cstacks_free_symbol(&symbol) }
        guard let raw = symbol.name, let image = symbol.image else { return nil }
        // Not its folder: the trace is the same wherever the program lies.
        let file = String(cString: image).split(separator: "/").last ?? ""
        if file.contains(".so") { return nil }
        guard let demangled = cstacks_demangle(raw) else { return String(cString: raw) }
        defer { cstacks_free_text(demangled) }
        return shortened(String(cString: demangled))
    }

    /// Without what the compiler adds to a function that suspends.
    private static func shortened(_ name: String) -> String {
        var name = name[...]
        if name.hasPrefix("("), let end = name.range(of: " partial function for ") { name = name[end.upperBound...] }
        return withoutDiscriminators(name)
    }

    /// `(Account in _9FEF…).withdraw(Swift.Int)` becomes `Account.withdraw(Int)`.
    private static func withoutDiscriminators(_ name: Substring) -> String {
        var result = ""
        var rest = name
        while let start = rest.range(of: " in _") {  // ends: the rest gets shorter
            let digits = rest[start.upperBound...].prefix { $0.isHexDigit }
            let end = digits.endIndex
            if digits.count == 32, end < rest.endIndex, rest[end] == ")" {
                var kept = rest[..<start.lowerBound]
                if let parenthesis = kept.lastIndex(of: "(") { kept = kept[..<parenthesis] + kept[kept.index(after: parenthesis)...] }
                result += kept
                rest = rest[rest.index(after: end)...]
            } else {
                result += rest[..<start.upperBound]
                rest = rest[start.upperBound...]
            }
        }
        result += rest
        while let module = result.range(of: "Swift.") { result.removeSubrange(module) }
        return result
    }

    private static func isOfProgram(_ name: String) -> Bool {
        let foreign = [
            "thunk", "reabstraction thunk", "partial apply", "EventLoopSimulation.", "csim_", "syscall", "Swift.", "merged ",
            "static Swift",
            "outlined",
        ]
        return !foreign.contains { name.hasPrefix($0) || name.contains("in EventLoopSimulation.") }
    }

    /// Innermost first.
    static func frames(of task: csim_task_state) -> [String] {
        var frames: [String] = []
        withUnsafeBytes(of: task.frames) { bytes in
            for address in bytes.bindMemory(to: UnsafeMutableRawPointer?.self) {
                guard let address, let name = name(address), isOfProgram(name), frames.last != name else { continue }
                frames.append(name)
            }
        }
        return frames
    }

    /// The type of an object.
    static func typeName(_ object: UnsafeMutableRawPointer) -> String? {
        _typeName(type(of: Unmanaged<AnyObject>.fromOpaque(object).takeUnretainedValue()), qualified: false)
    }

    /// Nil if the function is not the program's.
    static func nameInProgram(_ caller: UnsafeMutableRawPointer) -> String? {
        guard let name = name(caller), isOfProgram(name) else { return nil }
        return name
    }

    static func firstOfProgram(_ callers: [UnsafeMutableRawPointer]) -> String? { callers.lazy.compactMap(nameInProgram).first }
}

extension StringProtocol {
    /// The standard library has no search for a text without Foundation.
    fileprivate func range(of other: String) -> Range<Index>? {
        var index = startIndex
        while index < endIndex {  // ends: one character further in each iteration
            if self[index...].hasPrefix(other) { return index..<self.index(index, offsetBy: other.count) }
            index = self.index(after: index)
        }
        return nil
    }
}
