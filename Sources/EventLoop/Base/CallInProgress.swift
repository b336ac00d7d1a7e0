internal import EventLoopLibC

/// A call of the program's code that is in progress on its thread, and what follows it, also if the thread ends inside (`pthread_exit`,
/// `pthread_cancel`) and nothing else would notice. Lifecycle: the thread's key holds the innermost call, and each call the one around it. `end`
/// takes a call out. When the thread's loop ends, or the thread, each call that is left is taken out before its closure is called, which may end the
/// thread again. A child of a fork inside a call takes it out without calling the closure: what follows is the parent's.
package final class CallInProgress {
    /// Nil if it is the object itself.
    private let caller: AnyObject?
    private let ifThreadEnds: () -> Void
    private let mark = ProcessMark()
    private var outer: CallInProgress?

    private init(_ caller: AnyObject?, _ ifThreadEnds: @escaping () -> Void, _ outer: CallInProgress?) {
        (self.caller, self.ifThreadEnds, self.outer) = (caller, ifThreadEnds, outer)
    }

    /// The caller begins a call on this thread. If the thread ends inside, it calls `ifThreadEnds`: as its loop begins to end, else at its own end.
    package static func begin(by caller: AnyObject, ifThreadEnds: @escaping () -> Void) {
        innermost = CallInProgress(caller, ifThreadEnds, innermost)
    }

    /// The caller's calls on this thread have returned. Nothing if it has none.
    package static func end(by caller: AnyObject) { innermost = innermost?.without(caller) }

    /// Calls `body`, and then `rest`. If the thread ends inside `body`, `rest` is called as after `begin`.
    package static func call(_ body: () -> Void, then rest: @escaping () -> Void) { /* DOES CALLOUT */
        let call = CallInProgress(nil, rest, innermost)
        innermost = call
        body()
        innermost = innermost?.without(call)
        if call.mark.isOurs { rest() }
    }

    /// Calls `body` with each thing that `takeNext` returns, until nil. If the thread ends in such a call, the others are made as after `begin`.
    package static func callForEach<Next>(_ takeNext: @escaping () -> Next?, _ body: @escaping (Next) -> Void) { /* DOES CALLOUT */
        let call = CallInProgress(nil, { callForEach(takeNext, body) }, innermost)
        innermost = call
        while call.mark.isOurs, let next = takeNext() { body(next) }  // ends: the caller has a list
        innermost = innermost?.without(call)
    }

    /// The thread's loop ends, or the thread.
    static func abandonAll() { /* DOES CALLOUT */
        while let call = innermost {  // ends: each iteration removes one
            innermost = call.outer
            if call.mark.isOurs { call.ifThreadEnds() }
        }
    }

    private func without(_ caller: AnyObject) -> CallInProgress? {
        outer = outer?.without(caller)
        return self === caller || self.caller === caller ? outer : self
    }

    private static var innermost: CallInProgress? {
        get { pthread_getspecific(key).map { Unmanaged<CallInProgress>.fromOpaque($0).takeUnretainedValue() } }
        set {
            let old = pthread_getspecific(key)
            let code = pthread_setspecific(key, newValue.map { UnsafeRawPointer(Unmanaged.passRetained($0).toOpaque()) })
            precondition(code == 0, "pthread_setspecific: \(code)")
            if let old { Unmanaged<CallInProgress>.fromOpaque(old).release() }
        }
    }

    static let key: pthread_key_t = {
        var key = pthread_key_t()
        let code = pthread_key_create(&key) { pointer in
            // The system has set the value to nil. It is there again, so that the system continues if a closure ends the thread.
            pthread_setspecific(CallInProgress.key, pointer)
            CallInProgress.abandonAll()
        }
        precondition(code == 0, "pthread_key_create: \(code)")
        return key
    }()
}
