// The run loop source of a socket: a source of version 0, as in Core Foundation, that is never signaled.
//
// The watcher, which the kernel makes ready, joins the source in each mode and leaves with it. So the source has Core Foundation's order and
// its moments: the first mode that it joins enables all callbacks.

internal import EventLoop

extension CFSocket {
    /// The socket's only source, made when it is first asked for, and again after it was invalidated or released.
    func makeSource(_ order: CFIndex, _ file: StaticString, _ line: UInt) -> RunLoop.Source? {
        if let source = state.withLock({ $0.source }), source.isValid { return source }
        guard let watcher = makeWatcher(file, line) else { return nil }
        let made = RunLoop.CustomSource(
            order: order, label: "CFSocket", file: file, line: line,
            schedule: { [self] loop, mode in join(loop, mode, watcher) }, cancel: { [self] loop, mode in leave(loop, mode, watcher) }
        ) {}
        made.attachment = OrderAttachment(order)
        let (source, unused) = state.withLock { state -> (RunLoop.CustomSource?, RunLoop.CustomSource?) in
            if state.native == nil { return (nil, made) }
            if let source = state.source, source.isValid { return (source, made) }
            state.source = made
            return (made, nil)
        }
        unused?.invalidate()
        return source
    }

    private func makeWatcher(_ file: StaticString, _ line: UInt) -> RunLoop.DescriptorSource? {
        let (native, watcher) = state.withLock { ($0.native, $0.watcher) }
        guard let native, watcher == nil else { return watcher }
        let made = try? RunLoop.DescriptorSource(descriptor: native.descriptor, events: [], label: "CFSocket", file: file, line: line) {
            [weak self] _, ready in self?.serve(ready)
        }
        guard let made else { return nil }
        made.attachment = EndOfAbandonedCalls { [weak self] in self?.endAbandonedCalls() }
        let kept = state.withLock { state -> RunLoop.DescriptorSource? in
            if state.native == nil { return nil }
            if let watcher = state.watcher { return watcher }
            state.watcher = made
            return made
        }
        if kept !== made {
            made.invalidate()
        } else {
            made.onInvalidation { [weak self] watcher in
                // If the socket is still valid, the kernel refuses to watch it, or somebody has closed its descriptor. Then the number may
                // be another one's by now.
                self?.invalidate(closes: watcher.failure != .badDescriptor(native.descriptor))
                withExtendedLifetime(native) {}
            }
        }
        return kept
    }

    /// The source was added to a mode.
    private func join(_ loop: RunLoop, _ mode: RunLoop.Mode, _ watcher: RunLoop.DescriptorSource) { /* DOES CALLOUT */
        state.withLock { state in
            state.places += 1
            if state.places == 1 { arm(types, &state) }
        }
        loop.addIfPossible(watcher, forMode: mode)
        // Another thread may have removed the source meanwhile, and its `leave` may have come first.
        if !isSource(in: loop, mode) { loop.remove(watcher, forMode: mode) }
        // After the addition: a pause that has no timer in this mode is ended here, or finds that it was ended before it began.
        endPause()
    }

    /// The source was removed from a mode.
    private func leave(_ loop: RunLoop, _ mode: RunLoop.Mode, _ watcher: RunLoop.DescriptorSource) { /* DOES CALLOUT */
        state.withLock { $0.places -= 1 }
        loop.remove(watcher, forMode: mode)
        // Another thread may have added the source again meanwhile, and its `join` may have come first.
        if isSource(in: loop, mode) { loop.addIfPossible(watcher, forMode: mode) }
        // The timer of a pause may be in this loop.
        endPause()
    }

    private func isSource(in loop: RunLoop, _ mode: RunLoop.Mode) -> Bool {
        guard let source = state.withLock({ $0.source }) else { return false }
        return loop.contains(source, forMode: mode)
    }
}
