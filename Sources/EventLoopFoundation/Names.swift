// The names that code written for Foundation's run loop uses, and nothing else of Foundation.
//
// On Linux the types come from FoundationEssentials, which has neither a RunLoop nor a Timer: a file may import all of it beside
// EventLoop, and bare names stay unambiguous. On macOS there is only Foundation. Scoped imports re-export the one declaration that
// they name; of the operators, which are not members, they export none, so `Date() + 3` needs an import of FoundationEssentials.

public import EventLoop

#if canImport(FoundationEssentials)
@_exported public import struct FoundationEssentials.Date
@_exported public import typealias FoundationEssentials.TimeInterval
#else
@_exported public import struct Foundation.Date
@_exported public import typealias Foundation.TimeInterval
#endif

/// Foundation has its `Timer` at the top level.
public typealias Timer = RunLoop.Timer

// Foundation's are NSObjects, which compare by identity: code keeps them in sets, and looks for them in arrays.

extension RunLoop: Hashable {
    /// By identity, as with Foundation's. Thread-safe.
    public static func == (one: RunLoop, other: RunLoop) -> Bool { one === other }
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

extension RunLoop.Timer: Hashable {
    /// By identity, as with Foundation's. Thread-safe.
    public static func == (one: RunLoop.Timer, other: RunLoop.Timer) -> Bool { one === other }
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
