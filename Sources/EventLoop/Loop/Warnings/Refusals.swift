// Reports refused items and closures, because callers may ignore the results of `add` and `perform`. Each function returns false, that result.

extension RunLoop {
    @inline(never) func refuseClosure(_ site: CreationSite) -> Bool { /* DOES CALLOUT */
        if isRefusalLikelyMistake {
            Warnings.report(
                .refusedClosure, label: nil, site: site,
                "a closure will not be performed, because \(reasonForRefusal); check the result of perform, or keep the thread alive")
        }
        return false
    }

    @inline(never) func refuse(_ source: Source) -> Bool { /* DOES CALLOUT */
        refuse("a source (\(source.typeDescription))", isValid: source.isValid, in: "a loop with another clock", source.label, source.site)
    }

    @inline(never) func refuse(_ timer: Timer) -> Bool { /* DOES CALLOUT */
        // A timer of the library's: it has fired, or was cancelled, before the library has added it to all of its modes.
        if timer.state.endsWithLoop && !timer.isValid { return false }
        return refuse("a timer", isValid: timer.isValid, timer.label, timer.site)
    }

    @inline(never) func refuse(_ observer: Observer) -> Bool { /* DOES CALLOUT */
        refuse("an observer", isValid: observer.isValid, observer.label, observer.site)
    }

    /// `holder`: where a valid item must be that a loop refuses.
    private func refuse(
        _ item: String, isValid: Bool, in holder: String = "another loop", _ label: String?, _ site: CreationSite
    ) -> Bool { /* DOES CALLOUT */
        let reason: String
        if !isValid {
            reason = "it is invalid; \(item == "a timer" ? "a timer that fires once is invalid after it has fired; " : "")make a new one"
        } else if shared.withLock({ $0.phase != .ended }) {
            // Under the lock, as `add` decides: `hasEnded` is set a little later.
            reason = "it is in \(holder); remove it there first, or make one for each loop"
        } else if isRefusalLikelyMistake {
            reason = "\(reasonForRefusal); check the result of add, or keep the thread alive"
        } else {
            return false
        }
        Warnings.report(.refusedItem, label: label, site: site, "\(item) was not added to a run loop, because \(reason)")
        return false
    }

    /// Whether the loop's `RunLoopThread` was stopped. A precondition failure for a loop of the parent process.
    var wasToldToEnd: Bool { shared.withLock { $0.drain.isRequested } }

    /// A thread that is stopping refuses work in every program that ends in an orderly way: only callers that go on regardless are reported.
    private var isRefusalLikelyMistake: Bool {
        shared.withLock { shared in
            guard shared.drain.isRequested else { return true }
            shared.refusals = min(shared.refusals + 1, Warnings.ordinaryRefusals)
            return shared.refusals == Warnings.ordinaryRefusals
        }
    }

    private var reasonForRefusal: String { wasToldToEnd ? "the loop's RunLoopThread was stopped" : "the loop has ended with its thread" }
}
