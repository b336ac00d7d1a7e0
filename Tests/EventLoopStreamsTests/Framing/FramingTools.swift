// Plays a framing over pieces, as a stream does, and the plain references that framings are compared with.

import EventLoopStreams
import EventLoopTestSupport

/// What a framing made of a whole input.
struct Framed<Frame: Equatable & Sendable>: Equatable, Sendable {
    var frames: [Frame] = []
    var error: StreamError?
    /// Bytes were left at the end, and the framing returned nil.
    var endedEarly = false
}

/// Feeds `input` to `framing` in pieces that end at `cuts`, which are in order. Bytes that it leaves come again. `isLastWithBytes`: the end
/// is known with the last piece, and not only after it.
func play<F: StreamFraming>(_ framing: F, _ input: [UInt8], cuts: [Int] = [], isLastWithBytes: Bool = true) -> Framed<F.Frame>
where F.Frame: Equatable {
    var (framing, result) = (framing, Framed<F.Frame>())
    var (consumed, received) = (0, 0)
    var ends = (cuts + [input.count]).map { ($0, false) } + [(input.count, true)]
    if isLastWithBytes { ends.remove(at: ends.count - 2) }
    for (end, isLast) in ends {
        precondition(end >= received)
        received = end
        do {
            try input.withUnsafeBytes { all in
                let view = UnsafeRawBufferPointer(rebasing: all[consumed..<received])
                var bytes = ReceivedBytes(viewing: view, isLast: isLast, at: UInt64(consumed))
                while let frame = try framing.next(in: &bytes, isLast: isLast) { result.frames.append(frame) }
                consumed += bytes.consumedCount
            }
        } catch let error as StreamError {
            result.error = error
            return result
        } catch {
            preconditionFailure("unexpected error: \(error)")
        }
    }
    result.endedEarly = consumed < input.count
    return result
}

/// Lines by definition, without regard to speed.
func referenceLines(_ input: [UInt8], limit: Int) -> Framed<String> {
    var result = Framed<String>()
    var pieces = input.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map(Array.init)
    let rest = pieces.removeLast()
    for var line in pieces {
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        if line.count > limit {
            result.error = .frameTooLong(limit: limit)
            return result
        }
        result.frames.append(String(decoding: line, as: UTF8.self))
    }
    if rest.count > limit {
        result.error = .frameTooLong(limit: limit)
    } else if !rest.isEmpty {
        result.frames.append(String(decoding: rest, as: UTF8.self))
    }
    return result
}

/// Messages behind their length by definition: with numbers of any size.
func referenceMessages(_ input: [UInt8], lengthBytes: Int, limit: Int) -> Framed<[UInt8]> {
    var result = Framed<[UInt8]>()
    var rest = input[...]
    while rest.count >= lengthBytes {  // ends: each message consumes its length
        let length = rest.prefix(lengthBytes).reduce(0.0) { $0 * 256 + Double($1) }
        if length > Double(limit) {
            result.error = .frameTooLong(limit: limit)
            return result
        }
        guard Double(rest.count - lengthBytes) >= length else { break }
        rest = rest.dropFirst(lengthBytes)
        result.frames.append(Array(rest.prefix(Int(length))))
        rest = rest.dropFirst(Int(length))
    }
    result.endedEarly = !rest.isEmpty
    return result
}

/// Every way to cut `count` bytes into pieces: 2 to the power of `count - 1`.
func everyCut(of count: Int) -> some Sequence<[Int]> {
    (0..<(1 << max(count - 1, 0))).lazy.map { bits in (1..<max(count, 1)).filter { bits >> ($0 - 1) & 1 == 1 } }
}

/// Random cuts; some pieces are empty.
func randomCuts(of count: Int, longest: Int, _ random: inout SplitMix64) -> [Int] {
    var (cuts, place) = ([Int](), 0)
    while true {  // ends: `place` grows, by half of `longest` on average
        place += random.below(longest + 1)
        if place >= count { return cuts }
        cuts.append(place)
    }
}
