// The server's end of the control: a named port on the main loop. Belongs to the main thread.

import EventLoop

final class ControlPort {
    /// What the server does when it is asked.
    protocol Delegate: AnyObject {
        var status: ServerStatus { get }
        /// Idempotent.
        func beginStopping(because reason: String)
    }

    let name: String
    private unowned let delegate: any Delegate
    private var port: RunLoop.LocalMessagePort?
    /// Those who wait for the end.
    private var waiting: [RunLoop.RemoteMessagePort] = []
    private static let most = 32

    /// - Parameter delegate: owns this object.
    init(name: String, delegate: any Delegate) throws(DemoError) {
        self.name = name
        self.delegate = delegate
        let here = LoopBound(self)
        do throws(RunLoop.PortError) {
            let port = try RunLoop.LocalMessagePort(name: name, label: "control") { _, id, data in here.value.answer(id, data) }
            RunLoop.current.add(port, forMode: .common)
            self.port = port
        } catch .nameInUse {
            throw DemoError(sentence: "the name '\(name)' is in use by another server; pick another with --name")
        } catch .badName {
            throw DemoError(sentence: "'\(name)' cannot be a name: a name has 1 to 128 bytes, and no NUL", code: 2)
        } catch {
            throw DemoError(sentence: "cannot open the control port '\(name)': \(error)")
        }
    }

    private func answer(_ id: Int32, _ data: [UInt8]) -> [UInt8]? {
        switch id {
        case ControlMessage.status: return Array(StatusTable.text(of: delegate.status).utf8)
        case ControlMessage.stop:
            guard waiting.count < ControlPort.most else { return Array("too many others wait for this already".utf8) }
            // The sender waits at a port of its own. If it has gone meanwhile, the server stops all the same.
            let sender = try? RunLoop.RemoteMessagePort(name: String(decoding: data, as: UTF8.self), timeout: .zero)
            if let sender { waiting.append(sender) }
            delegate.beginStopping(because: "ctl stop")
            return Array(StatusTable.waiting(delegate.status).utf8)
        default: return nil
        }
    }

    /// To everybody who waits. A receiver that has no room for it, or is gone, does not hold the server up.
    func announce(_ id: Int32, _ sentence: String) {
        for remote in waiting { try? remote.send(id: id, data: Array(sentence.utf8), timeout: .zero) }
    }

    /// Gives the name back.
    func close() { port?.invalidate() }
}
