// The text of the demo, section by section. The tables are in Report.swift, the picture in Timeline.swift.

import EventLoop

struct Narrator {
    let terminal: Terminal
    private var palette: Palette { terminal.palette }

    init(terminal: Terminal) {
        self.terminal = terminal
    }

    func greet(url: String, loops: Int) {
        terminal.line()
        terminal.line("  " + palette.bold("EventLoop") + palette.dim("  Apple's run-loop model on libevent"))
        terminal.line()
        terminal.line("  " + palette.cyan(url) + "  libevent's own HTTP server on \(Format.count(loops, "run loop"))")
        terminal.line(palette.dim("  try  curl \(url)  or  curl \(url)statistics"))
        terminal.line()
        terminal.flush()
    }

    func beginDriving(clients: Int, seconds: Int) {
        terminal.line("  \(Format.count(clients, "client")) on the main loop, for \(Format.count(seconds, "second"))")
        terminal.line()
        terminal.line(palette.dim(Report.secondHead))
        terminal.flush()
    }

    func second(_ number: Int, total: UInt64, latency: Latency, batches: Int) {
        terminal.line(Report.second("\(number)", total: total, latency: latency, batches: batches))
        terminal.flush()
    }

    func allSeconds(_ seconds: Int, total: UInt64, latency: Latency, batches: Int) {
        let line = Report.second("all", total: total, latency: latency, seconds: seconds, batches: batches)
        terminal.line(palette.bold(line))
        terminal.flush()
    }

    func timeline(_ pass: Pass, among count: Int, recorder: Recorder) {
        heading("One pass of the main loop", "the median of \(count) recorded")
        for line in Timeline(pass: pass, palette: palette).lines { terminal.line(line) }
        terminal.line()
        if case .response(let connection) = pass.cause {
            terminal.line(palette.dim("  Step 9 was the answer to client \(connection), which then asked again."))
        }
        let (all, slept) = (Format.grouped(recorder.passes), Format.grouped(recorder.passesThatSlept))
        terminal.line(palette.dim("  Of \(all) passes \(slept) slept; the others had work at hand."))
        terminal.flush()
    }

    func statistics(of loops: [Report.NamedLoop]) {
        heading("What each loop has done", "")
        for line in Report.statistics(of: loops, palette: palette) { terminal.line(line) }
        terminal.line()
        // A C library's callbacks run inside the wait (see `withEventBase`), so the http loops are busier than they look.
        terminal.line(palette.dim("  libevent gives its answers inside the wait, so their time counts as waiting."))
        terminal.line()
        terminal.flush()
    }

    func wroteTimeline(to path: String?, events: Int) {
        heading("What each loop did, callout by callout", "")
        if let path {
            terminal.line("  \(Format.grouped(UInt64(events))) events, in a page for a browser:")
            terminal.line("  " + palette.cyan(path))
        } else {
            terminal.line("  The timeline could not be written; --timeline PATH names another place.")
        }
        terminal.line()
        terminal.flush()
    }

    func serving(url: String) {
        terminal.line("  " + palette.bold("Serving ") + palette.cyan(url) + palette.dim("  Ctrl-C stops"))
        terminal.line()
        terminal.flush()
    }

    func visited(_ count: UInt64, of all: UInt64) {
        let (count, all) = (Format.grouped(count), Format.grouped(all))
        terminal.line("  +\(count)" + palette.dim(" for other clients, \(all) in all"))
        terminal.flush()
    }

    func beginStopping() {
        terminal.line("  " + palette.bold("Stopping, in order"))
        terminal.line()
        terminal.flush()
    }

    func stopped(_ what: String, _ how: String) {
        terminal.line("  " + palette.green("✓") + " " + Format.left(what, 9) + palette.dim(how))
        terminal.flush()
    }

    /// Every answer is counted at both ends; `received` is nil if the demo sent no requests itself.
    func settle(answeredByHost: [Int: UInt64], received: UInt64?, visitors: UInt64) {
        terminal.line()
        let answered = "  answered \(Format.grouped(answeredByHost.values.reduce(0, +)))  "
        let shares = answeredByHost.sorted { $0.key < $1.key }
            .map { "http-\($0.key) \(Format.grouped($0.value))" }.joined(separator: ", ")
        // With many loops the table above is enough.
        terminal.line(answered + (answered.count + shares.count <= 79 ? palette.dim(shares) : ""))
        if let received {
            let others = visitors == 0 ? "" : palette.dim("  and \(Format.grouped(visitors)) by other clients")
            terminal.line("  received \(Format.grouped(received))" + others)
        }
        terminal.line()
        terminal.flush()
    }

    private func heading(_ title: String, _ remark: String) {
        terminal.line()
        terminal.line("  " + palette.bold(title) + palette.dim(remark.isEmpty ? "" : "  \(remark)"))
        terminal.line()
    }
}
