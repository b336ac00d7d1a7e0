// The entry point of the fuzzer for the framings of byte streams. Scripts/fuzz compiles it together with ReceivedBytes and the framings only.
//
// An input says in its first bytes which framing reads it, the limit, and how the rest is split. Read as a whole, in pieces, and by a plain
// definition of the framing, the rest must give the same frames, the same error and the same bytes left. Each piece is in memory of exactly its size, so that
// AddressSanitizer notices a byte read beyond it. No frame may be longer than the limit.

/// What a framing made of the input. Lines are compared as UTF-8.
private struct Reading: Equatable {
    var frames: [[UInt8]] = []
    var error: StreamError?
    /// The bytes that were not consumed.
    var rest: [UInt8] = []
}

/// How the bytes are given to the framing.
private struct Split {
    /// The sizes of the pieces, one after the other and from the beginning again. Empty: one piece.
    let sizes: ArraySlice<UInt8>
    /// The end is known with the last piece, and not only after it.
    let isLastWithBytes: Bool
}

private func read<F: StreamFraming>(
    _ input: ArraySlice<UInt8>, _ framing: F, _ split: Split, bytesOf: (F.Frame) -> [UInt8]
) -> Reading {
    var (framing, reading, coming, sizes) = (framing, Reading(), input, split.sizes[...])
    var (position, ended) = (0, false)
    while !ended {  // ends: each turn takes a byte of `coming`, or is the last
        if sizes.isEmpty { sizes = split.sizes }
        let size = max(sizes.popFirst().map(Int.init) ?? coming.count, 1)
        reading.rest += coming.prefix(size)
        ended = split.isLastWithBytes ? coming.count <= size : coming.isEmpty
        coming = coming.dropFirst(size)

        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: reading.rest.count, alignment: 1)
        defer { memory.deallocate() }
        memory.copyBytes(from: reading.rest)
        var bytes = ReceivedBytes(viewing: UnsafeRawBufferPointer(memory), isLast: ended, at: UInt64(position))
        do {
            while let frame = try framing.next(in: &bytes, isLast: ended) { reading.frames.append(bytesOf(frame)) }
        } catch let error as StreamError {
            reading.error = error
            ended = true
        } catch {
            preconditionFailure("unexpected error: \(error)")
        }
        precondition(bytes.consumedCount + bytes.count == reading.rest.count, "bytes are lost")
        position += bytes.consumedCount
        reading.rest.removeFirst(bytes.consumedCount)
    }
    // After an error, how much had come depends on the pieces.
    if reading.error != nil { reading.rest = Array(reading.rest + coming) }
    return reading
}

/// Lines by definition.
private func lines(_ input: ArraySlice<UInt8>, limit: Int) -> Reading {
    var reading = Reading(rest: Array(input))
    while !reading.rest.isEmpty {  // ends: each turn consumes bytes
        let lineFeed = reading.rest.firstIndex(of: 10)
        var line = Array(reading.rest[..<(lineFeed ?? reading.rest.count)])
        if lineFeed != nil && line.last == 13 { line.removeLast() }
        if line.count > limit {
            reading.error = .frameTooLong(limit: limit)
            break
        }
        reading.frames.append(Array(String(decoding: line, as: UTF8.self).utf8))
        reading.rest.removeFirst(lineFeed.map { $0 + 1 } ?? reading.rest.count)
    }
    return reading
}

/// Messages behind their length by definition. A limit is at most 256, so a length needs no more than its sum and whether it is beyond.
private func messages(_ input: ArraySlice<UInt8>, lengthBytes: Int, limit: Int) -> Reading {
    var reading = Reading(rest: Array(input))
    while reading.rest.count >= lengthBytes {  // ends: each turn consumes bytes
        let length = reading.rest.prefix(lengthBytes).reduce(0) { min($0 * 256 + Int($1), 1 << 20) }
        if length > limit {
            reading.error = .frameTooLong(limit: limit)
            break
        }
        if reading.rest.count < lengthBytes + length { break }
        reading.frames.append(Array(reading.rest[lengthBytes..<(lengthBytes + length)]))
        reading.rest.removeFirst(lengthBytes + length)
    }
    return reading
}

private func check<F: StreamFraming>(
    _ input: ArraySlice<UInt8>, _ framing: F, _ expected: Reading, _ split: Split, bytesOf: (F.Frame) -> [UInt8]
) {
    let whole = read(input, framing, Split(sizes: [], isLastWithBytes: true), bytesOf: bytesOf)
    let inPieces = read(input, framing, split, bytesOf: bytesOf)
    precondition(whole == inPieces, "the frames depend on how their bytes are split")
    precondition(whole == expected, "the frames are not those of the definition")
}

@_cdecl("LLVMFuzzerTestOneInput")
public func fuzzOne(_ start: UnsafeRawPointer, _ count: Int) -> CInt {
    let all = Array(UnsafeRawBufferPointer(start: start, count: count))
    guard all.count >= 3, all.count - 3 >= Int(all[2] % 32) else { return 0 }
    let (limit, pieces) = (Int(all[1]) + 1, Int(all[2] % 32))
    let split = Split(sizes: all[3..<(3 + pieces)], isLastWithBytes: all[0] & 16 != 0)
    let input = all[(3 + pieces)...]
    if all[0] & 1 == 0 {
        check(input, LineFraming(limit: limit), lines(input, limit: limit), split) { Array($0.utf8) }
    } else {
        let lengthBytes = Int(all[0] >> 1 & 7) + 1
        let expected = messages(input, lengthBytes: lengthBytes, limit: limit)
        check(input, LengthPrefixFraming(lengthBytes: lengthBytes, limit: limit), expected, split) { $0 }
    }
    return 0
}
