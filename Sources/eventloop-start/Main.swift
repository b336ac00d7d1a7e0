// The smallest program with a timer, for eventloop-perf to start and time (W8).

import EventLoop

@main
struct Start {
    static func main() {
        let loop = RunLoop.current
        RunLoop.Timer.scheduled(after: .zero) { _ in loop.stop() }
        loop.run()
    }
}
