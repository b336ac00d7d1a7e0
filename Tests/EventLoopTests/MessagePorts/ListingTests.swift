// The Guide's Listings 3-16 to 3-19, about ports with names, with the functions of EventLoopCF, and run. The other listings are in
// EventLoopCFTests/ListingTests.swift. CFMessagePort is `LocalMessagePort` and `RemoteMessagePort`; a local port is its own source.

import EventLoop
import EventLoopCF
import EventLoopMessagePorts
import EventLoopTestSupport
import Testing

private let kCheckinMessage: Int32 = 100

/// AddPortToListOfActiveThreads.
private let activeThreads = Locked<[String: RunLoop.RemoteMessagePort]>([:])

/// Listing 3-17: attaching a Core Foundation message port to a new thread.
private func MySpawnThread(_ myPortName: String, _ workerName: String) -> JoinableThread<Void>? {
    // Create the port.
    let myPort = try? RunLoop.LocalMessagePort(
        name: myPortName,
        handler: MainThreadResponseHandler)

    if let myPort {
        // The port was successfully created, and is a run loop source.
        // Add the source to the current run loop.
        CFRunLoopAddSource(CFRunLoopGetCurrent(), myPort, kCFRunLoopDefaultMode)
    }

    // Create the thread and continue processing.
    return myPort == nil ? nil : plainThread { try ServerThreadEntryPoint(portName: myPortName, myPortName: workerName) }
}

/// Listing 3-18: receiving the checkin message. Main thread port message handler.
@Sendable private func MainThreadResponseHandler(local: RunLoop.LocalMessagePort, msgid: Int32, data: [UInt8]) -> [UInt8]? {
    if msgid == kCheckinMessage {
        let threadPortName = String(decoding: data, as: UTF8.self)

        // You must obtain a remote message port by name.
        let messagePort = try? RunLoop.RemoteMessagePort(name: threadPortName)

        if let messagePort {
            // Retain and save the thread's comm port for future reference.
            activeThreads.withLock { $0[threadPortName] = messagePort }
        }
    } else {
        // Process other messages.
    }

    return nil
}

/// Listing 3-19: setting up the thread structures.
private func ServerThreadEntryPoint(portName: String, myPortName: String) throws {
    // Create the remote port to the main thread.
    let mainThreadPort = try RunLoop.RemoteMessagePort(name: portName)

    // Create a port for the worker thread.
    let myPort = try RunLoop.LocalMessagePort(name: myPortName, handler: ProcessClientRequest)

    // Add the source to the current run loop.
    CFRunLoopAddSource(CFRunLoopGetCurrent(), myPort, kCFRunLoopDefaultMode)

    // Package up the port name and send the check-in message.
    try mainThreadPort.send(id: kCheckinMessage, data: Array(myPortName.utf8), timeout: .milliseconds(100))

    // Enter the run loop.
    CFRunLoopRun()
}

/// Ends the worker's run loop: its port is the last source.
@Sendable private func ProcessClientRequest(local: RunLoop.LocalMessagePort, msgid: Int32, data: [UInt8]) -> [UInt8]? {
    CFRunLoopSourceInvalidate(local)
    return nil
}

@Suite(.bounded, .tags(.threads, .memory)) struct ListingTests {
    @Test func `Listing 3-16: a port with a name on the current run loop`() throws {
        try onFreshThread { _ in
            let localPortName = freshName("MyPortName")
            // Configure the object and add it to the current run loop. The name must be unique.
            let localPort = try RunLoop.LocalMessagePort(name: localPortName) { _, _, _ in nil }
            CFRunLoopAddSource(CFRunLoopGetCurrent(), localPort, kCFRunLoopDefaultMode)

            try RunLoop.RemoteMessagePort(name: localPortName).send(id: 1, timeout: .seconds(60))
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, true) == .handledSource)
            CFRunLoopSourceInvalidate(localPort)
        }
    }

    @Test func `Listings 3-17 to 3-19: a worker checks in through a port with a name`() throws {
        try onFreshThread { _ in
            let (mainName, workerName) = (freshName("com.myapp.MainThread"), freshName("com.MyApp.Thread"))
            let worker = try #require(MySpawnThread(mainName, workerName))
            #expect(CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1e10, true) == .handledSource)
            let port = try #require(activeThreads.withLock { $0.removeValue(forKey: workerName) })
            try port.send(id: 1, timeout: .seconds(60))
            try worker.join()
        }
    }
}
