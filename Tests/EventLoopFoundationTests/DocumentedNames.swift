// The block of docs/foundation.md about files that also import Foundation, compiled: see DocumentedFoundation.swift.

import EventLoop
import EventLoopFoundation
import Foundation

private typealias RunLoop = EventLoop.RunLoop
private typealias Timer = EventLoop.RunLoop.Timer

func timerBesideFoundation() -> EventLoop.RunLoop.Timer { Timer(fire: Date() + 3, interval: 0, repeats: false) { _ in } }
