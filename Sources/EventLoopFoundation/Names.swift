// The names of Foundation that code for its run loop uses, and no others.
//
// On Linux the types come from FoundationEssentials, which has neither a RunLoop nor a Timer. A file may import all of it together with
// EventLoop, and bare names stay unambiguous. On macOS there is only Foundation. A scoped import re-exports only the declaration that it
// names. It exports no operators, which are not members, so `Date() + 3` needs an import of FoundationEssentials.

public import EventLoop

#if canImport(FoundationEssentials)
@_exported public import struct FoundationEssentials.Date
@_exported public import typealias FoundationEssentials.TimeInterval
#else
@_exported public import struct Foundation.Date
@_exported public import typealias Foundation.TimeInterval
#endif

/// Foundation's `Timer` is at the top level.
public typealias Timer = RunLoop.Timer

// Foundation's are NSObjects, which compare by identity; code keeps them in sets and searches for them in arrays.

extension RunLoop: Hashable {
    /// By identity, like Foundation's. Thread-safe.
    public static func == (one: RunLoop, other: RunLoop) -> Bool { one === other }
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

extension RunLoop.Timer: Hashable {
    /// By identity, like Foundation's. Thread-safe.
    public static func == (one: RunLoop.Timer, other: RunLoop.Timer) -> Bool { one === other }
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
