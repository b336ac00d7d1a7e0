// The orderly end of a loop whose thread was stopped.

import Synchronization

extension RunLoop {
    /// Ends every run in progress, however deep, after the pass in progress. From now on performs and blocks are refused; what was accepted is
    /// performed by `performLastBatch`. Jobs cannot be refused: those that come too late for that batch run after the loop's end. Thread-safe.
    func terminate() {
        if belongsToParentProcess { return }
        shared.withLock { shared in
            // Once: the thread takes it back before its last batch.
            guard shared.phase == .open else { return }
            shared.phase = .closing
            runs.terminate()
        }
        wakeUp()
    }

    /// Performs everything that was accepted and not performed, for whatever modes, in the order it was queued. Owning thread only.
    func performLastBatch() { /* DOES CALLOUT */
        assert(runs.depth == 0, "the last batch comes after the last run")
        // The closures of this batch, and the teardown, may run the loop for purposes of their own.
        runs.resume()
        var batch = takeUnperformed()
        batch += shared.withLock { $0.modes.takeAllClosuresLocked() }
        batch.sort { $0.sequence < $1.sequence }
        applyChanges()
        finishItems()
        for item in batch { callOutToPerform(item.body) }
        performJobBatch { applyChanges() }
    }

    /// Makes the default mode's base ahead of the first run, so that a shortage of descriptors shows while the thread can still report it.
    func prepareDefaultMode() throws(SourceError) {
        let poller = try Poller(waking: waker.channel)
        modeTable[0].poller = poller
        Reserve.complete()
    }
}
