// What holds after every world, whatever its steps were.

import EventLoop

@testable import EventLoopStreams

extension StreamStage {
    func judge() {
        judgeReceived()
        judgeWritten()
        judgeEnd()
        for call in calls where !call.isOver { complaints.append("\(call.name) has not returned") }
        if weakStream != nil { complaints.append("the stream is held by somebody after its end") }
        let result = loop.run(for: .zero)
        if result != .finished { complaints.append("the stream is still on its loop: \(result)") }
    }

    /// The program, the clock, or somebody on the way has ended it, or the layer has failed.
    private var isCutShort: Bool {
        isBroken || layerIsRefused || world.place == .inEnd || world.trouble?.what == .fails
            || !happened.isDisjoint(with: [.close, .timePasses])
            || layerIsWanted && !happened.isDisjoint(with: [.cancel, .peerTruncates, .peerCloses, .peerResets])
    }

    /// Nothing is lost, nothing comes twice, and nothing comes that was not encrypted.
    private func judgeReceived() {
        if !sent.starts(with: received) {
            complaints.append("the program read \(text(received)), and the peer sent \(text(sent))")
        }
        // The end of one side drops what the other one still sends, and a reset what is on its way.
        let mayBeDropped: Set<WorldStep> = [.closeAfterWriting, .release]
        let isReset = happened.contains(.peerResets) && !(wire is MemoryWire)
        if isCutShort || peerHasDropped || isReset || handlerCameLate || !happened.isDisjoint(with: mayBeDropped) { return }
        let isFailed = if case .failed = seenEnd { true } else { false }
        // A failure has no last call: a handler has seen what it left.
        if received.count + (isFailed ? isLeft : 0) < sent.count {
            complaints.append("of \(sent.count) bytes that the peer sent, the program read \(received.count)")
        }
    }

    private func judgeWritten() {
        let certain = written.filter { $0.state == .accepted }
        let accepted = certain.flatMap(\.bytes)
        let possible = written.filter { $0.state != .refused }.flatMap(\.bytes)
        if !accepted.starts(with: got) && !possible.starts(with: got) {
            complaints.append("the peer got \(text(got)), and the program wrote \(text(accepted))")
        }
        let clear = certain.filter { !$0.isEncrypted }.reduce(0) { $0 + $1.bytes.count }
        if gotInTheClear > clear { complaints.append("\(gotInTheClear - clear) bytes were sent in the clear after startTLS") }
        if lastCalls > 1 && !happened.contains(.close) { complaints.append("the last call came \(lastCalls) times") }
        let isGone = !happened.isDisjoint(with: [.peerCloses, .peerResets])
        if !isGone && got.count < mustArrive.count {
            complaints.append("finishWriting has succeeded with \(mustArrive.count) bytes, and the peer got \(got.count)")
        }
        if isGone || isCutShort { return }
        if got.count < accepted.count { complaints.append("of \(accepted.count) bytes that were accepted, the peer got \(got.count)") }
        if !seesEnd { complaints.append("the peer sees no end") }
        if peerLayer?.isDone == true && !seesGoodbye { complaints.append("the peer sees a truncated end") }
    }

    private func judgeEnd() {
        if endCalls != (setsEnd ? 1 : 0) { complaints.append("onEnd was called \(endCalls) times, and set \(setsEnd)") }
        let isFailed = if case .failed = seenEnd { true } else { false }
        let isCut = isBroken || layerIsWanted || world.trouble != nil
        var allowed: [Bool] = []
        // The peer's end comes in every world, and the program closes every stream behind it.
        allowed.append(seenEnd == .endOfStream && world.place != .inEnd)
        let closes: Set<WorldStep> = [.close, .closeAfterWriting, .release, .finishSending]
        allowed.append(seenEnd == .closed && (!happened.isDisjoint(with: closes) || isCut))
        allowed.append(seenEnd == .timedOut && happened.contains(.timePasses))
        allowed.append(isFailed && (isCut || !happened.isDisjoint(with: [.peerCloses, .peerResets])))
        if !allowed.contains(true) { complaints.append("the end is \(seenEnd as Any)") }
    }

    private func text(_ bytes: [UInt8]) -> String {
        bytes.count <= 60
            ? String(decoding: bytes, as: UTF8.self) : "\(bytes.count) bytes, \(String(decoding: bytes.prefix(40), as: UTF8.self))…"
    }
}
