// The orderly end of a loop whose thread is told to stop.

import Synchronization

extension RunLoop {
    /// Ends every run in progress, however deep, after the pass in progress. From now on performs, blocks and jobs are refused; what was
    /// accepted is performed by `performLastBatch`. Thread-safe.
    func terminate() {
        shared.withLock { shared in
            // Once: the thread takes it back before its last batch.
            guard shared.phase == .open else { return }
            shared.phase = .closing
            isTerminating.store(true, ordering: .sequentiallyConsistent)
        }
        wakeUp()
    }

    /// Performs everything that was accepted and not performed, for whatever modes, in the order it was queued. Owning thread only.
    func performLastBatch() { /* DOES CALLOUT */
        assert(owned.depth == 0, "the last batch comes after the last run")
        // What is performed here, and the teardown, may run the loop for purposes of their own.
        isTerminating.store(false, ordering: .sequentiallyConsistent)
        var batch = owned.modes.flatMap { $0.performing.removeAll() } + owned.commonPerforming.removeAll()
        shared.withLock { shared in
            for mode in shared.modes {
                batch += mode.blocks + mode.performs
                mode.changePopulation(by: -(mode.blocks.count + mode.performs.count))
                (mode.blocks, mode.performs) = ([], [])
            }
            let mixed = shared.blocks.mixed + shared.performs.mixed
            for item in mixed {
                item.modes.forEach { shared.modes[$0].changePopulation(by: -1) }
                if item.isCommon { commonPopulation.subtract(1, ordering: .acquiringAndReleasing) }
            }
            commonPopulation.subtract(shared.blocks.common.count + shared.performs.common.count, ordering: .acquiringAndReleasing)
            batch += shared.blocks.common + shared.performs.common + mixed.map(\.item)
            (shared.blocks, shared.performs) = (WorkQueues(), WorkQueues())
        }
        batch.sort { $0.sequence < $1.sequence }
        for item in batch { callOutToBlock(item.body) }
    }

    /// Makes the default mode's base ahead of the first run, so that a thread without descriptors is told in time. False with errno set.
    func prepareDefaultMode() -> Bool {
        guard let poller = Poller(waking: channel) else { return false }
        let mode = shared.withLock { shared in
            owned.modes = shared.modes
            return shared.modes[0]
        }
        mode.poller = poller
        return true
    }
}
