// libcurl's multi interface on a loop: libcurl names the descriptors and the time that it waits for, and sources and a timer report them.
//
// Lifecycle of the multi handle: made by `init`, freed by `close`. An easy handle is made by `get` and freed when its transfer ends, is
// cancelled, or the client closes. libcurl opens and closes the descriptors; it reports each before it closes it.

import CCurl
import EventLoop
import TestSupport

/// On the loop's thread only.
final class CurlClient {
    private let loop: RunLoop
    private let mode: RunLoop.Mode
    private let multi: UnsafeMutableRawPointer
    private var sources: [Int32: RunLoop.DescriptorSource] = [:]
    private let timer: RunLoop.Timer
    private var transfers: [UnsafeMutableRawPointer: Transfer] = [:]
    /// Calls of libcurl.
    let calls = Box(0)

    final class Transfer {
        fileprivate let easy: UnsafeMutableRawPointer
        fileprivate let body: (Transfer, CURLcode) -> Void
        private(set) var received = 0
        /// The bytes that were received, each once.
        private(set) var alphabet: Set<UInt8> = []
        /// Called for each piece, inside libcurl.
        var onPiece: ((Transfer) -> Void)?

        fileprivate init(_ easy: UnsafeMutableRawPointer, _ body: @escaping (Transfer, CURLcode) -> Void) {
            (self.easy, self.body) = (easy, body)
        }

        fileprivate func receive(_ bytes: UnsafeRawBufferPointer) {
            received += bytes.count
            // Every reply of the server repeats one byte, or is short.
            if let first = bytes.first, let last = bytes.last { alphabet.formUnion([first, last]) }
            if bytes.count < 100 { alphabet.formUnion(bytes) }
            onPiece?(self)
        }

        func number(_ info: CURLINFO) -> Int {
            var value = 0
            ccurl_get_long(easy, info, &value)
            return value
        }
    }

    /// Before any other call of libcurl, once.
    private static let isInitialized = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

    init(on loop: RunLoop, _ mode: RunLoop.Mode) {
        (self.loop, self.mode) = (loop, mode)
        _ = Self.isInitialized
        multi = curl_multi_init()
        let here = Box<LoopBound<Unmanaged<CurlClient>>?>(nil)
        timer = .onDemand(label: "curl") { _ in here.value?.value.takeUnretainedValue().act(CURL_SOCKET_TIMEOUT, 0) }
        loop.add(timer, forMode: mode)
        let context = Unmanaged.passUnretained(self)
        here.value = LoopBound(context)
        ccurl_multi_set_pointer(multi, CURLMOPT_SOCKETDATA, context.toOpaque())
        ccurl_multi_set_pointer(multi, CURLMOPT_TIMERDATA, context.toOpaque())
        ccurl_multi_set_long(multi, CURLMOPT_MAX_HOST_CONNECTIONS, 8)
        ccurl_multi_set_socket_function(multi) { _, descriptor, what, context, _ in
            Unmanaged<CurlClient>.fromOpaque(context!).takeUnretainedValue().watch(descriptor, what)
            return 0
        }
        ccurl_multi_set_timer_function(multi) { _, milliseconds, context in
            Unmanaged<CurlClient>.fromOpaque(context!).takeUnretainedValue().waitUntil(milliseconds)
            return 0
        }
    }

    /// Drops the transfers in progress.
    func close() {
        for transfer in transfers.values { cancel(transfer) }
        timer.invalidate()
        curl_multi_cleanup(multi)
        precondition(sources.isEmpty, "libcurl reports each descriptor before it closes it")
    }

    /// Calls `body` when the transfer has ended.
    @discardableResult
    func get(
        _ port: UInt16, _ path: String, timeoutMilliseconds: Int = 0, _ body: @escaping (Transfer, CURLcode) -> Void
    ) -> Transfer {
        let easy = curl_easy_init()!
        let transfer = Transfer(easy, body)
        transfers[easy] = transfer
        "http://127.0.0.1:\(port)\(path)".withCString { _ = ccurl_set_pointer(easy, CURLOPT_URL, $0) }  // libcurl copies it
        ccurl_set_long(easy, CURLOPT_NOSIGNAL, 1)
        ccurl_set_long(easy, CURLOPT_FOLLOWLOCATION, 1)
        ccurl_set_pointer(easy, CURLOPT_PROXY, "")
        if timeoutMilliseconds > 0 { ccurl_set_long(easy, CURLOPT_TIMEOUT_MS, timeoutMilliseconds) }
        ccurl_set_pointer(easy, CURLOPT_WRITEDATA, Unmanaged.passUnretained(transfer).toOpaque())
        ccurl_set_write_function(easy) { bytes, size, count, transfer in
            let transfer = Unmanaged<Transfer>.fromOpaque(transfer!).takeUnretainedValue()
            transfer.receive(UnsafeRawBufferPointer(start: bytes, count: size * count))
            return size * count
        }
        precondition(curl_multi_add_handle(multi, easy) == CURLM_OK)
        return transfer
    }

    /// No-op if the transfer has ended. Not inside libcurl.
    func cancel(_ transfer: Transfer) {
        guard transfers.removeValue(forKey: transfer.easy) != nil else { return }
        curl_multi_remove_handle(multi, transfer.easy)
        curl_easy_cleanup(transfer.easy)
    }

    // MARK: What libcurl waits for

    private func watch(_ descriptor: Int32, _ what: Int32) {
        if what == CURL_POLL_REMOVE {
            sources.removeValue(forKey: descriptor)?.invalidate()
            return
        }
        var events: RunLoop.DescriptorSource.Events = []
        if what & CURL_POLL_IN != 0 { events.insert(.read) }
        if what & CURL_POLL_OUT != 0 { events.insert(.write) }
        if let source = sources[descriptor] {
            source.events = events
            return
        }
        let here = LoopBound(Unmanaged.passUnretained(self))
        let source = try! RunLoop.DescriptorSource(descriptor: descriptor, events: events, label: "curl") { source, events in  // a socket
            var bits: Int32 = 0
            if events.contains(.read) { bits |= CURL_CSELECT_IN }
            if events.contains(.write) { bits |= CURL_CSELECT_OUT }
            here.value.takeUnretainedValue().act(source.descriptor, bits)
        }
        sources[descriptor] = source
        loop.add(source, forMode: mode)
    }

    private func waitUntil(_ milliseconds: Int) {
        timer.nextFire = milliseconds < 0 ? .distantFuture : .now + .milliseconds(milliseconds)
    }

    // MARK: What has happened

    private func act(_ descriptor: Int32, _ bits: Int32) {
        calls.increment()
        var running: Int32 = 0
        precondition(curl_multi_socket_action(multi, descriptor, bits, &running) == CURLM_OK)
        var left: Int32 = 0
        while let message = curl_multi_info_read(multi, &left) {  // ends: each turn takes one message
            guard message.pointee.msg == CURLMSG_DONE, let transfer = transfers.removeValue(forKey: message.pointee.easy_handle) else {
                continue
            }
            let result = ccurl_result(message)
            curl_multi_remove_handle(multi, transfer.easy)
            transfer.body(transfer, result)
            curl_easy_cleanup(transfer.easy)
        }
    }
}
