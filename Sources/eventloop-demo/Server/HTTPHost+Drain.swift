// Waiting for the last answers.
//
// While a host drains, it accepts no connection, and closes each connection after its next answer. Its hold delays the end of the thread
// until a whole interval has passed in which no request was in progress: a request that a client sent a moment ago is still read and
// answered. Connections that never send a whole request do not count, and are closed with the evhttp.

import EventLoop

struct Drain {
    fileprivate static let interval = Duration.milliseconds(20)
    fileprivate let hold: RunLoopThread.Hold
    fileprivate let timer: RunLoop.Timer
    fileprivate var requestsBefore: Int

    func end() {
        timer.invalidate()
        hold.release()
    }
}

extension HTTPHost {
    /// Called on the loop's thread after `stop()`.
    func beginDraining() {
        stopAccepting()
        let here = LoopBound(self)
        let timer = RunLoop.Timer(every: Drain.interval, label: "drain") { _ in here.value.checkDrain() }
        drain = Drain(hold: loop.holdThread(), timer: timer, requestsBefore: counters.requests.value)
        loop.add(timer)
    }

    private func checkDrain() {
        let requests = counters.requests.value
        let isQuiet = counters.inProgress.value == 0 && requests == drain?.requestsBefore
        drain?.requestsBefore = requests
        if isQuiet { drain?.end() }
    }
}
