// Simple items that keep a mode from being empty, or that cause an event in it.

public import EventLoop

extension RunLoop {
    /// Adds a source that is never signaled, so that `mode` is not empty.
    @discardableResult
    public func addIdleSource(forMode mode: Mode = .default) -> CustomSource {
        let source = CustomSource {}
        add(source, forMode: mode)
        return source
    }

    /// Adds a custom source whose closure receives the source itself.
    @discardableResult
    public func addSource(
        forMode mode: Mode = .default, order: Int = 0, signaled: Bool = false, perform: @escaping @Sendable (CustomSource) -> Void
    ) -> CustomSource {
        let itself = WeakReference<CustomSource>()
        // The loop retains the source during the call of its closure.
        let source = CustomSource(order: order) { perform(itself.value!) }
        itself.value = source
        add(source, forMode: mode)
        if signaled { source.signal() }
        return source
    }

    /// Adds a one-shot timer.
    @discardableResult
    public func addTimer(forMode mode: Mode = .default, at date: Instant, handler: @escaping @Sendable (Timer) -> Void) -> Timer {
        let timer = Timer(fireAt: date, handler: handler)
        add(timer, forMode: mode)
        return timer
    }

    /// Adds a source for a pipe with data to read. The source reads the data, then calls `handler`.
    @discardableResult
    public func addReadyPipe(
        forMode mode: Mode = .default, handler: @escaping @Sendable (DescriptorSource) -> Void
    ) throws -> DescriptorSource {
        let pipe = Pipe()
        pipe.write()
        let source = try DescriptorSource(descriptor: pipe.readEnd, events: .read) { source, _ in
            pipe.readAll()
            handler(source)
        }
        add(source, forMode: mode)
        return source
    }

    /// Calls `body` at the first `activity` in `mode`, after the observer of a trace.
    @discardableResult
    public func atFirst(_ activity: Activity, forMode mode: Mode = .default, do body: @escaping @Sendable () -> Void) -> Observer {
        let observer = Observer(activities: activity, repeats: false, order: 1) { _, _ in body() }
        add(observer, forMode: mode)
        return observer
    }
}
