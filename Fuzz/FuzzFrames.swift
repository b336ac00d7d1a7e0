// The entry point of the fuzzer for the decoder of frames. Scripts/fuzz compiles it together with FrameDecoder.swift only.
//
// The first byte of an input is the size of the pieces into which the rest is cut. Read as a whole and in pieces, the input must give the
// same frames and the same error. Frames must be within bounds, and encoding a decoded frame must give its bytes again.

private let maximumLength = 4_096
private let longest = max(maximumLength, Frame.refusalLength)

private struct Reading: Equatable {
    var frames: [Frame] = []
    var cancelled: [Bool] = []
    var error: FrameError?
    /// The start of the bytes that were not delivered.
    var rest = 0
}

private func read(_ bytes: UnsafeRawBufferPointer, inPiecesOf size: Int) -> Reading {
    var decoder = FrameDecoder(maximumLength: maximumLength)
    var reading = Reading()
    var offset = 0
    while offset < bytes.count && reading.error == nil {
        let end = min(offset + size, bytes.count)
        decoder.append(UnsafeRawBufferPointer(rebasing: bytes[offset..<end]))
        offset = end
        do {
            while true {
                let promised = decoder.hasNext()
                guard let (frame, isCancelled) = try decoder.next() else {
                    precondition(!promised, "hasNext was true, but next returned no frame")
                    break
                }
                precondition(promised, "hasNext was false, but next returned a frame")
                precondition(frame.body.count <= longest && frame.descriptorCount <= Frame.descriptorLimit)
                reading.frames.append(frame)
                reading.cancelled.append(isCancelled)
            }
        } catch {
            reading.error = error
            precondition(decoder.heldBytes == 0, "the decoder holds bytes after an error")
        }
        precondition(decoder.heldBytes <= Frame.headerSize + longest + Frame.sealSize, "the decoder holds more than one frame")
    }
    reading.rest = decoder.heldBytes
    return reading
}

/// Encoding the decoded frames again gives the same bytes.
private func check(_ reading: Reading, against bytes: UnsafeRawBufferPointer) {
    // The body of an abandoned frame is gone, and with it the place of the next frame.
    if reading.cancelled.contains(true) { return }
    var offset = 0
    for frame in reading.frames {
        let header = Frame.header(
            frame.kind, descriptors: frame.descriptorCount, length: frame.body.count, conversation: frame.conversation, id: frame.id)
        header.withBytes { precondition(bytes[offset..<(offset + Frame.headerSize)].elementsEqual($0)) }
        offset += Frame.headerSize
        precondition(bytes[offset..<(offset + frame.body.count)].elementsEqual(frame.body))
        offset += frame.body.count + Frame.sealSize
    }
}

@_cdecl("LLVMFuzzerTestOneInput")
public func fuzzOne(_ start: UnsafeRawPointer, _ count: Int) -> CInt {
    guard count > 0 else { return 0 }
    let all = UnsafeRawBufferPointer(start: start, count: count)
    let bytes = UnsafeRawBufferPointer(rebasing: all[1...])
    let inPieces = read(bytes, inPiecesOf: Int(all[0] % 64) + 1)
    var whole = read(bytes, inPiecesOf: max(bytes.count, 1))
    // A whole input may contain more than one frame at a time; the delivered frames are the same.
    if whole.error == nil { precondition(whole.rest == inPieces.rest) } else { whole.rest = inPieces.rest }
    precondition(whole == inPieces, "the frames depend on how their bytes are split")
    check(whole, against: bytes)
    return 0
}
