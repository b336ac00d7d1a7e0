// libcurl's multi interface on a loop. libcurl has no event loop inside: it says which sockets to watch and when to call it, and descriptor
// sources and a timer do that.
//
// Lifecycle of the handles: `Downloads` makes the multi handle and frees it in `free`. Each transfer has an easy handle, which is freed when
// libcurl reports the transfer's end, or in `free`. libcurl closes a socket after it has asked to watch it no more.

import CCurl
import EventLoop

struct NoCurl: Error {}

/// For the loop's thread only.
final class Downloads {
    private let loop: RunLoop
    private let multi: UnsafeMutableRawPointer
    private var timer: RunLoop.Timer?
    private var sources: [Int32: RunLoop.DescriptorSource] = [:]
    private var transfers: [UnsafeMutableRawPointer: Transfer] = [:]

    init(on loop: RunLoop) throws {
        guard curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK, let multi = curl_multi_init() else { throw NoCurl() }
        (self.loop, self.multi) = (loop, multi)
        // Handlers may run on any thread as far as the compiler knows. They reach this object on the loop's thread only.
        let here = LoopBound(self)
        let timer = RunLoop.Timer.onDemand { _ in here.value.act(CURL_SOCKET_TIMEOUT, 0) }
        loop.add(timer)
        self.timer = timer

        let context = Unmanaged.passUnretained(self).toOpaque()
        ccurl_multi_set_pointer(multi, CURLMOPT_SOCKETDATA, context)
        ccurl_multi_set_socket_function(multi) { _, socket, what, context, _ in
            Unmanaged<Downloads>.fromOpaque(context!).takeUnretainedValue().watch(socket, what)
            return 0
        }
        ccurl_multi_set_pointer(multi, CURLMOPT_TIMERDATA, context)
        ccurl_multi_set_timer_function(multi) { _, milliseconds, context in
            Unmanaged<Downloads>.fromOpaque(context!).takeUnretainedValue().setTimer(milliseconds)
            return 0
        }
    }

    /// Begins a download. `completion` is called on the loop's thread, with what happened.
    func start(_ address: String, _ completion: @escaping (String) -> Void) {
        guard let easy = curl_easy_init() else { return completion("no memory") }
        let transfer = Transfer(hold: loop.holdThread(), completion)
        transfers[easy] = transfer
        // libcurl copies the string.
        ccurl_set_pointer(easy, CURLOPT_URL, address)
        // In seconds. By itself libcurl has a limit for connecting only.
        ccurl_set_long(easy, CURLOPT_TIMEOUT, 60)
        ccurl_set_pointer(easy, CURLOPT_WRITEDATA, Unmanaged.passUnretained(transfer).toOpaque())
        ccurl_set_write_function(easy) { bytes, size, count, context in
            Unmanaged<Transfer>.fromOpaque(context!).takeUnretainedValue().received += size * count
            return size * count
        }
        curl_multi_add_handle(multi, easy)
    }

    /// Drops the transfers that are in progress.
    func free() {
        for easy in transfers.keys { end(easy, "cancelled") }
        curl_multi_cleanup(multi)
        timer?.invalidate()
        timer = nil
    }

    // MARK: What libcurl asks for

    private func watch(_ socket: Int32, _ what: Int32) {
        if what == CURL_POLL_REMOVE {
            // On the loop's thread, the socket is out of the kernel's set when this returns, so libcurl may close it.
            sources.removeValue(forKey: socket)?.invalidate()
            return
        }
        var events: RunLoop.DescriptorSource.Events = []
        if what & CURL_POLL_IN != 0 { events.insert(.read) }
        if what & CURL_POLL_OUT != 0 { events.insert(.write) }
        if let source = sources[socket] {
            source.events = events
            return
        }
        let here = LoopBound(self)
        let source = try? RunLoop.DescriptorSource(descriptor: socket, events: events) { _, ready in
            var bits: Int32 = 0
            if ready.contains(.read) { bits |= CURL_CSELECT_IN }
            if ready.contains(.write) { bits |= CURL_CSELECT_OUT }
            here.value.act(socket, bits)
        }
        // Without a source, the transfer ends by its timeout.
        guard let source else { return }
        sources[socket] = source
        loop.add(source)
    }

    private func setTimer(_ milliseconds: Int) {
        timer?.nextFire = milliseconds < 0 ? .distantFuture : loop.clock.now + .milliseconds(milliseconds)
    }

    // MARK: What happens

    private func act(_ socket: Int32, _ events: Int32) {
        var running: Int32 = 0
        curl_multi_socket_action(multi, socket, events, &running)
        var left: Int32 = 0
        while let message = curl_multi_info_read(multi, &left) {  // ends: each turn takes one message
            guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle else { continue }
            let code = ccurl_result(message)
            guard let transfer = transfers[easy] else { continue }
            var status = 0
            ccurl_get_long(easy, CURLINFO_RESPONSE_CODE, &status)
            end(easy, code == CURLE_OK ? "\(status), \(transfer.received) bytes" : String(cString: curl_easy_strerror(code)))
        }
    }

    private func end(_ easy: UnsafeMutableRawPointer, _ outcome: String) {
        let transfer = transfers.removeValue(forKey: easy)
        curl_multi_remove_handle(multi, easy)
        curl_easy_cleanup(easy)
        transfer?.completion(outcome)
        transfer?.hold.release()
    }
}

/// A download in progress, which holds the thread.
private final class Transfer {
    let hold: RunLoopThread.Hold
    let completion: (String) -> Void
    var received = 0

    init(hold: RunLoopThread.Hold, _ completion: @escaping (String) -> Void) { (self.hold, self.completion) = (hold, completion) }
}
