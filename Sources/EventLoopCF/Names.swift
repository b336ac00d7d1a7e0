// The names that Foundation gives to its own run loop and timer.
//
// They are here so that a file that imports Foundation beside this module does not compile if it declares a `RunLoop` or a `Timer`: the
// functions of this module never reach Foundation's loop, and its loop never fires timers of this module. The compiler shows the lines around
// each candidate of an ambiguous name, so the cure is the comment above it.

public import EventLoop

/// This package's run loop, so that a file that imports only EventLoopCF can name it.
// If this is ambiguous: import FoundationEssentials instead of Foundation, or write EventLoopCF.RunLoop or Foundation.RunLoop.
public typealias RunLoop = EventLoop.RunLoop

/// This package's timer.
// If this is ambiguous: import FoundationEssentials instead of Foundation, or write EventLoopCF.Timer or Foundation.Timer.
public typealias Timer = EventLoop.RunLoop.Timer
