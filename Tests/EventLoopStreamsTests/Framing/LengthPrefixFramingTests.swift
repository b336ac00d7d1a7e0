// Rules proved here:
// - The messages do not depend on how the bytes were split, for lengths of 1 to 8 bytes.
// - A length beyond the limit throws as soon as it has come, at every width, and nothing overflows.
// - A stream that ends inside a length or a message leaves bytes; one that ends between two messages leaves none.

import EventLoopStreams
import EventLoopTestSupport
import Testing

@Suite struct LengthPrefixFramingTests {
    private static func message(_ body: [UInt8], lengthBytes: Int) -> [UInt8] { length(UInt64(body.count), lengthBytes) + body }

    private static func length(_ length: UInt64, _ lengthBytes: Int) -> [UInt8] {
        (0..<lengthBytes).reversed().map { UInt8(truncatingIfNeeded: length >> UInt64(8 * $0)) }
    }

    @Test(arguments: 1...8) func `every way to split an input gives the same messages`(lengthBytes: Int) {
        let input = [[7], [], [1, 2], [3]].flatMap { Self.message($0, lengthBytes: lengthBytes) }
        // The stream ends after each of the first bytes.
        for count in 0...min(input.count, 13) {
            let part = Array(input.prefix(count))
            let expected = referenceMessages(part, lengthBytes: lengthBytes, limit: 2)
            for cuts in everyCut(of: count) {
                for isLastWithBytes in [true, false] {
                    let messages = play(
                        LengthPrefixFraming(lengthBytes: lengthBytes, limit: 2), part, cuts: cuts, isLastWithBytes: isLastWithBytes)
                    if messages != expected { Issue.record("\(part), cut at \(cuts): \(messages)") }
                }
            }
        }
    }

    @Test(arguments: 0..<24 as Range<UInt64>) func `random splits of a large input give the messages of the definition`(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        let lengthBytes = 1 + Int(seed % 8)
        let longest = lengthBytes == 1 ? 255 : 3_000
        var input: [UInt8] = []
        for _ in 0..<60 {
            let body = (0..<random.below(longest + 1)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
            input += Self.message(body, lengthBytes: lengthBytes)
        }
        // One in three ends too early, one in three has arbitrary bytes somewhere.
        if seed % 3 == 1 { input.removeLast(1 + random.below(input.count)) }
        if seed % 3 == 2 { input[random.below(input.count)] = UInt8(truncatingIfNeeded: random.next()) }
        for limit in [longest, longest / 2] {
            let expected = referenceMessages(input, lengthBytes: lengthBytes, limit: limit)
            for piece in [1, 5, 200, 20_000] {
                let cuts = randomCuts(of: input.count, longest: piece, &random)
                #expect(play(LengthPrefixFraming(lengthBytes: lengthBytes, limit: limit), input, cuts: cuts) == expected)
            }
        }
    }

    @Test(arguments: 1...8) func `a length beyond the limit throws when its last byte has come`(lengthBytes: Int) throws {
        let largest: UInt64 = lengthBytes == 8 ? .max : 1 << UInt64(8 * lengthBytes) - 1
        let hostile: [UInt64] = [101, 128, 255, 256, 65_535, 1 << 31 - 1, 1 << 31, 1 << 32 - 1, 1 << 32, 1 << 63 - 1, 1 << 63, .max]
        for length in Set(hostile + [largest]) where length <= largest {
            let input = Self.length(length, lengthBytes)
            var framing = LengthPrefixFraming(lengthBytes: lengthBytes, limit: 100)
            for count in 0..<lengthBytes {
                var bytes = ReceivedBytes(Array(input[..<count]))
                let message = try framing.next(in: &bytes, isLast: false)
                #expect(message == nil)
            }
            var bytes = ReceivedBytes(input)
            do {
                _ = try framing.next(in: &bytes, isLast: false)
                Issue.record("the length \(length) was accepted")
            } catch { #expect(error == .frameTooLong(limit: 100)) }
        }
    }

    @Test(arguments: 1...8) func `a message of exactly the limit is returned`(lengthBytes: Int) {
        let body = [UInt8](repeating: 9, count: 200)
        let framing = LengthPrefixFraming(lengthBytes: lengthBytes, limit: 200)
        #expect(play(framing, Self.message(body, lengthBytes: lengthBytes)) == Framed(frames: [body]))
        #expect(play(framing, Self.length(201, lengthBytes)).error == .frameTooLong(limit: 200))
    }

    @Test func `the largest limit accepts the largest length, and waits`() throws {
        var framing = LengthPrefixFraming(lengthBytes: 8, limit: .max)
        var bytes = ReceivedBytes(Self.length(UInt64(Int.max), 8) + [1, 2, 3])
        let (message, count) = (try framing.next(in: &bytes, isLast: false), bytes.count)
        #expect(message == nil && count == 11)
        bytes = ReceivedBytes(Self.length(UInt64(Int.max) + 1, 8))
        do {
            _ = try framing.next(in: &bytes, isLast: false)
            Issue.record("the length was accepted")
        } catch { #expect(error == .frameTooLong(limit: .max)) }
    }

    @Test func `the default is a length of four bytes and a limit of sixteen MiB`() {
        #expect(play(LengthPrefixFraming(), [0, 0, 0, 2, 5, 6]) == Framed(frames: [[5, 6]]))
        #expect(play(LengthPrefixFraming(), [1, 0, 0, 0]) == Framed(endedEarly: true))
        #expect(play(LengthPrefixFraming(), [1, 0, 0, 1]).error == .frameTooLong(limit: 16 << 20))
    }

    @Test(arguments: [0, 9, -1, .max]) func `a length of no bytes or more than eight is a precondition failure`(lengthBytes: Int) async {
        await #expect(processExitsWith: .failure) { [lengthBytes] in _ = LengthPrefixFraming(lengthBytes: lengthBytes) }
    }

    @Test(arguments: [0, -1]) func `a limit below one byte is a precondition failure`(limit: Int) async {
        await #expect(processExitsWith: .failure) { [limit] in _ = LengthPrefixFraming(limit: limit) }
    }
}
