// The frames that user code runs under. Their names are for backtraces and profiles: do not rename or inline them.

extension RunLoop {
    @inline(never) func callOutToCustomSource(_ source: CustomSource) { source.callPerform() }
    /// A descriptor, a signal, a process, a socket: what the kernel watches.
    @inline(never) func callOutToWatchedSource(_ core: SourceCorePointer, _ ready: Readiness) -> Bool {
        if core.pointee.traits.contains(.isDescriptorSource) { return DescriptorSource.serve(core, ready) }
        return Source.borrowed(core).use { $0.serve(ready) }
    }

    @inline(never) func callOutToPrepare(_ guest: GuestLoop) -> Int64 { guest.callPrepare() }
    @inline(never)
    func callOutToPort(_ source: Source, upTo last: UInt64, onlyOne: Bool) -> Bool { source.serveMessage(upTo: last, onlyOne: onlyOne) }
    @inline(never) func callOutToTimer(_ timer: Timer) { timer.callHandler() }
    @inline(never) func callOutToObserver(_ observer: Observer, _ activity: Activity) { observer.callHandler(activity) }

    /// A job that came by preference runs as code of the loop, without isolation (decision 42). A job of an actor runs isolated only: with a
    /// preference that its task does not have, the runtime would send it through the queue again at every `await` that returns to the actor.
    @inline(never) func callOutToJob(_ job: QueuedJob) {
        if job.isPreference {
            job.job.runSynchronously(on: asUnownedTaskExecutor())
        } else {
            job.job.runSynchronously(on: asUnownedSerialExecutor())
        }
    }

    @inline(never) func callOutToBlock(_ block: @escaping @Sendable () -> Void) { block() }
    @inline(never) func callOutToPerform(_ body: @escaping @Sendable () -> Void) { body() }
}
