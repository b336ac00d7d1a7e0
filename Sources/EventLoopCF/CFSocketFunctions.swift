// CFSocket.h: the functions.

public import EventLoop

/// The number of the type. Thread-safe. See `CFSocketGetTypeID`.
public func CFSocketGetTypeID() -> CFTypeID { 6 }

// MARK: Creating

/// Makes a socket and its object. Zero or less is TCP's for the family and the type; for a family or a type that has a default, zero is that.
/// Nil if the system makes no such socket.
///
/// `callBackTypes`: at most one of read, accept and data, and any of connect and write. They are enabled when the source is added to its first
/// mode. The callout may be nil. The context may be nil; it is copied, and its `retain` is called here, on the calling thread. The socket is
/// close-on-exec. Thread-safe. See `CFSocketCreate`.
public func CFSocketCreate(
    _ allocator: CFAllocator!, _ protocolFamily: Int32, _ socketType: Int32, _ protocol: Int32, _ callBackTypes: CFOptionFlags,
    _ callout: CFSocketCallBack!, _ context: UnsafePointer<CFSocketContext>!
) -> CFSocket! { /* DOES CALLOUT */
    let descriptor = SocketCalls.makeSocket(protocolFamily, socketType, `protocol`)
    guard let native = NativeSocket(descriptor) else { return nil }
    let socket = CFSocket(native, callBackTypes, callout, RetainedContext(context?.pointee ?? CFSocketContext()))
    // The kernel has just made the descriptor, so an earlier socket has lost its own to somebody who closed it.
    SocketTable.replace(with: socket, descriptor)?.invalidate(closes: false)
    return socket
}

/// The object of a socket, made if the socket has none. Then only `sock` matters, and the context is not retained.
///
/// The descriptor is closed after the object was invalidated or released, unless `kCFSocketCloseOnInvalidate` is turned off. If the
/// descriptor is not open, the object is invalid. Thread-safe. See `CFSocketCreateWithNative`.
public func CFSocketCreateWithNative(
    _ allocator: CFAllocator!, _ sock: CFSocketNativeHandle, _ callBackTypes: CFOptionFlags, _ callout: CFSocketCallBack!,
    _ context: UnsafePointer<CFSocketContext>!
) -> CFSocket! { /* DOES CALLOUT */
    if let existing = SocketTable.socket(sock) { return existing }
    let native = NativeSocket(sock)
    let made = CFSocket(native, callBackTypes, callout, RetainedContext(context?.pointee ?? CFSocketContext()))
    if native == nil { return made }
    guard let existing = SocketTable.insert(made, sock) else { return made }
    // Another thread was faster.
    made.invalidate(closes: false)
    return existing
}

/// Makes a socket, binds it to the signature's address, and listens. Nil if the system refuses. Thread-safe. See
/// `CFSocketCreateWithSocketSignature`.
public func CFSocketCreateWithSocketSignature(
    _ allocator: CFAllocator!, _ signature: UnsafePointer<CFSocketSignature>!, _ callBackTypes: CFOptionFlags,
    _ callout: CFSocketCallBack!, _ context: UnsafePointer<CFSocketContext>!
) -> CFSocket! { /* DOES CALLOUT */
    let signature = given(signature, "signature").pointee
    return make(allocator, signature, callBackTypes, callout, context) { CFSocketSetAddress($0, signature.address?.takeUnretainedValue()) }
}

/// Makes a socket and connects it to the signature's address: see `CFSocketConnectToAddress(_:_:_:)`. Nil if that fails. Thread-safe. See
/// `CFSocketCreateConnectedToSocketSignature`.
public func CFSocketCreateConnectedToSocketSignature(
    _ allocator: CFAllocator!, _ signature: UnsafePointer<CFSocketSignature>!, _ callBackTypes: CFOptionFlags,
    _ callout: CFSocketCallBack!, _ context: UnsafePointer<CFSocketContext>!, _ timeout: CFTimeInterval
) -> CFSocket! { /* DOES CALLOUT */
    let signature = given(signature, "signature").pointee
    return make(allocator, signature, callBackTypes, callout, context) {
        CFSocketConnectToAddress($0, signature.address?.takeUnretainedValue(), timeout)
    }
}

private func make(
    _ allocator: CFAllocator!, _ signature: CFSocketSignature, _ callBackTypes: CFOptionFlags, _ callout: CFSocketCallBack!,
    _ context: UnsafePointer<CFSocketContext>!, _ prepare: (CFSocket) -> CFSocketError
) -> CFSocket? { /* DOES CALLOUT */
    let made: CFSocket? = CFSocketCreate(
        allocator, signature.protocolFamily, signature.socketType, signature.protocol, callBackTypes, callout, context)
    guard let made else { return nil }
    if prepare(made) == .success { return made }
    made.invalidate()
    return nil
}

// MARK: Addresses

/// Binds the socket to an address, and listens if it can. `.error` if the system refuses, the address is nil, or the socket is invalid.
/// Thread-safe. See `CFSocketSetAddress`.
public func CFSocketSetAddress(_ s: CFSocket!, _ address: CFData!) -> CFSocketError {
    given(s, "socket").bind(address)
}

/// Connects the socket. With a negative timeout, in the background: returns at once, and a connect callback comes. Otherwise waits, at most
/// for `timeout` seconds; with zero, as long as the system does.
///
/// Returns `.timeout` if there is no outcome yet; the attempt goes on then. `.error` if the system refuses, another thread waits for the outcome of
/// its own call, the address is empty, or the socket is invalid. Thread-safe. See `CFSocketConnectToAddress`.
public func CFSocketConnectToAddress(_ s: CFSocket!, _ address: CFData!, _ timeout: CFTimeInterval) -> CFSocketError {
    given(s, "socket").connect(given(address, "address"), timeout)
}

/// The socket's own address; nil if it has none. Of an invalid socket, the one that this function returned last. Thread-safe. See
/// `CFSocketCopyAddress`.
public func CFSocketCopyAddress(_ s: CFSocket!) -> CFData! { given(s, "socket").copyAddress() }

/// The address that the socket is connected to; nil if it was never connected, or is invalid. Thread-safe. See `CFSocketCopyPeerAddress`.
public func CFSocketCopyPeerAddress(_ s: CFSocket!) -> CFData! { given(s, "socket").copyPeerAddress() }

// MARK: State

/// Ends the socket and its source, for good. `info` is released here or, if a callback is in progress, after it.
///
/// Unless `kCFSocketCloseOnInvalidate` is off, the descriptor is closed when no loop watches it and no call uses it any more: in a callback of
/// the socket, after that has returned. Thread-safe. See `CFSocketInvalidate`.
public func CFSocketInvalidate(_ s: CFSocket!) { /* DOES CALLOUT */ given(s, "socket").invalidate() }

/// False after the socket was invalidated, or has called back for the end of its data. Thread-safe. See `CFSocketIsValid`.
public func CFSocketIsValid(_ s: CFSocket!) -> Bool { given(s, "socket").isValid }

/// The descriptor; -1 if the socket is invalid or nil. Thread-safe. See `CFSocketGetNative`.
public func CFSocketGetNative(_ s: CFSocket!) -> CFSocketNativeHandle { s?.native?.descriptor ?? -1 }

/// Writes the context that the object was made with to `context`, with the `info` that `retain` returned; an empty context if the socket is
/// invalid. Thread-safe. See `CFSocketGetContext`.
public func CFSocketGetContext(_ s: CFSocket!, _ context: UnsafeMutablePointer<CFSocketContext>!) {
    let retained = given(s, "socket").state.withLock { $0.context }
    given(context, "context").pointee = retained?.context ?? CFSocketContext()
}

/// The source of the socket, which retains it: the same one while it is valid and in use. Nil if the socket is invalid, or if the kernel
/// cannot watch the descriptor (a regular file, a directory).
///
/// Add it to a loop with `CFRunLoopAddSource`. `order` reads back with `CFRunLoopSourceGetOrder`, and has no effect: descriptors take turns.
/// Thread-safe. See `CFSocketCreateRunLoopSource`.
public func CFSocketCreateRunLoopSource(
    _ allocator: CFAllocator!, _ s: CFSocket!, _ order: CFIndex, file: StaticString = #fileID, line: UInt = #line
) -> CFRunLoopSource! {
    given(s, "socket").makeSource(order, file, line)
}

/// The flags. Thread-safe. See `CFSocketGetSocketFlags`.
public func CFSocketGetSocketFlags(_ s: CFSocket!) -> CFOptionFlags { given(s, "socket").state.withLock { $0.flags } }

/// Replaces the flags: the lowest eight bits count. Those that enable callbacks again are read after each callback. Thread-safe. See
/// `CFSocketSetSocketFlags`.
public func CFSocketSetSocketFlags(_ s: CFSocket!, _ flags: CFOptionFlags) {
    given(s, "socket").state.withLock { $0.flags = flags & 0xFF }
}

/// Disables callbacks, also those that come by themselves, until they are enabled. One in progress on another thread is not waited for.
/// Does nothing if the socket's source is in no mode: the first mode enables all. Thread-safe. See `CFSocketDisableCallBacks`.
public func CFSocketDisableCallBacks(_ s: CFSocket!, _ callBackTypes: CFOptionFlags) {
    given(s, "socket").disable(CFSocketCallBackType(rawValue: callBackTypes))
}

/// Enables callbacks. Reaches a sleeping loop at once. Does nothing for types that the socket was not made with, and if its source is in no
/// mode. Thread-safe. See `CFSocketEnableCallBacks`.
public func CFSocketEnableCallBacks(_ s: CFSocket!, _ callBackTypes: CFOptionFlags) { /* DOES CALLOUT */
    given(s, "socket").enable(CFSocketCallBackType(rawValue: callBackTypes))
}

// MARK: Sending

/// Sends all of `data`, to an address or to the connected peer. With a positive timeout, waits for room for at most that many seconds.
/// Otherwise, a blocking socket waits without a limit, and a non-blocking one waits neither for room nor for a thread that does.
///
/// `.timeout` and `.error` do not say how much was sent. A peer that is gone raises no signal. Thread-safe. See `CFSocketSendData`.
public func CFSocketSendData(
    _ s: CFSocket!, _ address: CFData!, _ data: CFData!, _ timeout: CFTimeInterval
) -> CFSocketError {
    guard let native = given(s, "socket").native else { return .error }
    return native.send(given(data, "data"), to: address, timeout)
}
