// Runs every file that is written into a folder, as a script of the shell. Linux only: other systems have no inotify.
//
//   job-runner FOLDER [JOBS [SECONDS]]      at most so many at a time, and each at most so long; 2 jobs, 60 seconds
//
// Everything is an item of one loop: the folder is a descriptor source, each child process a process source, each time limit a timer, and
// SIGTERM a signal source. So there is one thread and no lock, and no handler waits. After a SIGTERM the running jobs may finish, and the
// program ends with code 0. A job should write its results to another folder; in this one they would be jobs.

#if os(Linux)

import EventLoop
import Glibc

final class JobRunner: Sendable {
    private struct State {
        var waiting: [String] = []
        var running = 0
        /// The folder and the signal; none when the runner ends.
        var sources: [RunLoop.Source] = []
    }

    private let (folder, jobLimit, timeLimit): (String, Int, Duration)
    /// Handlers run on the loop's thread, so they share this without a lock. On another thread, the access traps.
    private let state = LoopBound(State(), to: .main)

    init(folder: String, jobLimit: Int, timeLimit: Duration) throws {
        (self.folder, self.jobLimit, self.timeLimit) = (folder, jobLimit, timeLimit)
        let inotify = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
        guard inotify >= 0 else { throw RunLoop.SourceError.system(operation: "inotify_init1", errno: errno) }
        // A file is complete when its writer closes it, or when it is moved here. One that has only been created is not.
        guard inotify_add_watch(inotify, folder, [IN_CLOSE_WRITE, IN_MOVED_TO, IN_ONLYDIR].reduce(0) { $0 | UInt32($1) }) >= 0 else {
            throw RunLoop.SourceError.system(operation: "inotify_add_watch \(folder)", errno: errno)
        }
        let source = try RunLoop.DescriptorSource(descriptor: inotify, events: .read) { source, _ in self.readNames(source.descriptor) }
        // The only right place. Earlier, the loop may still watch the descriptor, whose number another file could get.
        source.onInvalidation { close($0.descriptor) }
        let termination = try RunLoop.SignalSource(signal: SIGTERM) { _, _ in self.end() }
        RunLoop.main.add(source)
        RunLoop.main.add(termination)
        state.value.sources = [source, termination]
    }

    /// One read a call. If there is more, the source is ready again, and the other items have their turn in between.
    private func readNames(_ inotify: Int32) {
        let headerSize = MemoryLayout<inotify_event>.size
        var buffer = [UInt8](repeating: 0, count: 16_384)
        let count = read(inotify, &buffer, buffer.count)
        var rest = buffer[..<max(count, 0)]
        while !rest.isEmpty {  // ends: each turn removes an event, and the kernel writes whole events
            let event = rest.withUnsafeBytes { $0.loadUnaligned(as: inotify_event.self) }
            let name = rest.dropFirst(headerSize).prefix(Int(event.len)).prefix { $0 != 0 }
            rest = rest.dropFirst(headerSize + Int(event.len))
            if event.mask & UInt32(IN_Q_OVERFLOW) != 0 { say("too many files at once: some were missed") }
            if event.mask & UInt32(IN_IGNORED) != 0 { return end() }  // the folder was removed
            // A dot in front means "not yet": editors and downloads write such a file first. To rename it is to move it here.
            if let first = name.first, first != UInt8(ascii: ".") { state.value.waiting.append(String(decoding: name, as: UTF8.self)) }
        }
        startJobs()
    }

    private func startJobs() {
        while state.value.running < jobLimit, !state.value.waiting.isEmpty {  // ends: each turn removes a job
            let name = state.value.waiting.removeFirst()
            do { try startJob(name) } catch { say("\(name): not started: \(error)") }
        }
    }

    private func startJob(_ name: String) throws {
        let pid = try spawnShell(folder + "/" + name)
        // A negative number means the job's group of processes: what the script has started is killed, too.
        let limit = RunLoop.Timer(after: timeLimit) { _ in kill(-pid, SIGKILL) }
        do {
            // Reports when this child has ended, and reaps it and no other. It makes no difference if it has ended already.
            let source = try RunLoop.ProcessSource(pid: pid) { _, status in
                // From now on the number may be another process's. The timer is on this thread, so it cannot fire in between.
                limit.invalidate()
                self.jobEnded(name, status)
            }
            // If the parent of this program ignores SIGCHLD, the kernel reaps every child itself, and nobody learns how it has ended.
            source.onInvalidation { source in
                guard let failure = source.failure else { return }
                limit.invalidate()
                // After any other failure the child may still run.
                if failure != .badProcess(pid) {
                    kill(-pid, SIGKILL)
                    waitpid(pid, nil, 0)
                }
                self.jobEnded(name, "failed: \(failure)")
            }
            state.value.running += 1
            RunLoop.main.add(limit)
            RunLoop.main.add(source)
        } catch {
            // There is no descriptor left to watch the child with, and nobody else would reap it.
            kill(-pid, SIGKILL)
            waitpid(pid, nil, 0)
            throw error
        }
    }

    private func jobEnded(_ name: String, _ status: RunLoop.ExitStatus) {
        switch status {
        case .exited(let code): jobEnded(name, "exited with \(code)")
        case .signaled(let signal, _): jobEnded(name, "killed by signal \(signal)")
        }
    }

    private func jobEnded(_ name: String, _ outcome: String) {
        say("\(name): \(outcome)")
        state.value.running -= 1
        startJobs()
        stopIfDone()
    }

    /// Lets nothing new in. A second SIGTERM has its default action, because the source of the first is gone: it ends the program at once.
    private func end() {
        for source in state.value.sources { source.invalidate() }
        for name in state.value.waiting { say("\(name): not started: the runner ends") }
        (state.value.sources, state.value.waiting) = ([], [])
        say("ending after \(state.value.running) running jobs")
        stopIfDone()
    }

    /// Other loops end by themselves when nothing is left in their mode. The main one does not, because it serves the main queue, too.
    private func stopIfDone() {
        if state.value.sources.isEmpty, state.value.running == 0 { RunLoop.main.stop() }
    }
}

/// `print` alone would keep lines back that go into a pipe.
private func say(_ text: String) {
    print(text)
    fflush(nil)
}

@main
enum Program {
    static func main() {
        let words = Array(CommandLine.arguments.dropFirst())
        guard let folder = words.first, let jobs = words.count > 1 ? Int(words[1]) : 2, let seconds = words.count > 2 ? Int(words[2]) : 60
        else { return print("usage: job-runner FOLDER [JOBS [SECONDS]]") }
        do {
            // The sources' handlers retain the runner.
            _ = try JobRunner(folder: folder, jobLimit: max(jobs, 1), timeLimit: .seconds(seconds))
            say("watching \(folder)")
            RunLoop.main.run()
        } catch {
            say("\(error)")
            exit(1)
        }
    }
}

#else

@main
enum Program {
    static func main() { print("job-runner watches a folder with inotify, which only Linux has") }
}

#endif
