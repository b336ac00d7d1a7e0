// Rules proved here:
// - The lines do not depend on how the bytes were split; a CR and its LF may come apart.
// - The limit counts the bytes of a line without LF or CRLF, exactly. A longer line throws before its end has come.
// - The last line may lack its LF. A lone CR belongs to its line. Invalid UTF-8 is repaired.
// - Each byte is searched once, also if another caller of the stream has consumed bytes in the meantime.

import EventLoopStreams
import EventLoopTestSupport
import Testing

@Suite struct LineFramingTests {
    private let inputs = [
        "", "\n", "\r\n", "\r", "a", "ab\n", "ab\r\ncd", "\n\n\r\n", "a\r\r\nb", "\r\r\n\r", "abc\nd\r\n\r\ne\r", "é\nü\r\n", "x\0y\n\0",
    ]

    @Test func `every way to split an input gives the same lines`() {
        for input in inputs.map({ Array($0.utf8) }) {
            for limit in [1, 2, 3, 100] {
                let expected = referenceLines(input, limit: limit)
                for cuts in everyCut(of: input.count) {
                    for isLastWithBytes in [true, false] {
                        let lines = play(LineFraming(limit: limit), input, cuts: cuts, isLastWithBytes: isLastWithBytes)
                        if lines != expected { Issue.record("\(input) with limit \(limit), cut at \(cuts): \(lines)") }
                    }
                }
            }
        }
    }

    @Test func `every input of few letters gives the lines of the definition`() {
        let letters = Array("a\r\n".utf8)
        var inputs: [[UInt8]] = [[]]
        for _ in 0..<7 { inputs = inputs.filter { $0.count < 7 }.flatMap { input in letters.map { input + [$0] } } + inputs }
        for input in Set(inputs) {
            for limit in 1...3 {
                let expected = referenceLines(input, limit: limit)
                let single = Array(1..<max(input.count, 1))
                let whole = play(LineFraming(limit: limit), input)
                let inPieces = play(LineFraming(limit: limit), input, cuts: single, isLastWithBytes: false)
                if whole != expected || inPieces != expected { Issue.record("\(input) with limit \(limit): \(whole), \(inPieces)") }
            }
        }
    }

    @Test(arguments: 0..<20 as Range<UInt64>) func `random splits of a large input give the lines of the definition`(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        let count = 20_000 + random.below(20_000)
        let rarity = 2 + random.below(200)
        let input = (0..<count).map { _ -> UInt8 in
            switch random.below(rarity) {
            case 0: UInt8(ascii: "\n")
            case 1: UInt8(ascii: "\r")
            default: UInt8(truncatingIfNeeded: random.next())
            }
        }
        // In half of the runs some line is too long.
        let limit = random.below(2) == 0 ? 65_536 : 4 * rarity
        let expected = referenceLines(input, limit: limit)
        for longest in [1, 7, 300, 10_000] {
            let cuts = randomCuts(of: count, longest: longest, &random)
            #expect(play(LineFraming(limit: limit), input, cuts: cuts) == expected)
            #expect(play(LineFraming(limit: limit), input, cuts: cuts, isLastWithBytes: false) == expected)
        }
    }

    @Test(arguments: [1, 2, 10, 65_536]) func `a line of exactly the limit is returned, and one byte more is too long`(limit: Int) {
        let line = String(repeating: "x", count: limit)
        for end in ["\n", "\r\n", ""] {
            #expect(play(LineFraming(limit: limit), Array((line + end).utf8)) == Framed(frames: [line]))
            #expect(play(LineFraming(limit: limit), Array((line + "x" + end).utf8)).error == .frameTooLong(limit: limit))
        }
        // A CR that no LF follows counts.
        #expect(play(LineFraming(limit: limit), Array((line + "\r").utf8)).error == .frameTooLong(limit: limit))
        #expect(play(LineFraming(limit: limit), Array((line + "\rx\n").utf8)).error == .frameTooLong(limit: limit))
    }

    @Test func `a line without an end throws when one byte more than the limit has come`() throws {
        var framing = LineFraming(limit: 3)
        var bytes = ReceivedBytes(Array("abc".utf8))
        let three = try framing.next(in: &bytes, isLast: false)
        bytes = ReceivedBytes(Array("abc\r".utf8))
        let four = try framing.next(in: &bytes, isLast: false)
        #expect(three == nil && four == nil)
        bytes = ReceivedBytes(Array("abc\rd".utf8))
        do {
            _ = try framing.next(in: &bytes, isLast: false)
            Issue.record("the line was accepted")
        } catch { #expect(error == .frameTooLong(limit: 3)) }
        let count = bytes.count
        #expect(count == 5)
    }

    @Test func `the largest limit does not overflow`() {
        #expect(play(LineFraming(limit: .max), Array("abc\ndef".utf8)) == Framed(frames: ["abc", "def"]))
    }

    @Test func `invalid UTF-8 is repaired, also if it is split`() {
        let input: [UInt8] = [0x61, 0xFF, 0x0A, 0xC3, 0x0A, 0xE2, 0x82, 0xAC, 0x0D, 0x0A, 0xF0, 0x9F]
        for cuts in everyCut(of: input.count) {
            #expect(play(LineFraming(), input, cuts: cuts).frames == ["a\u{FFFD}", "\u{FFFD}", "€", "\u{FFFD}"])
        }
    }

    /// 1 MiB, one byte at a time: searched from the beginning each time, this is 5 * 10^11 comparisons, which take half a minute at least.
    @Test(.bounded) func `a long line that comes one byte at a time is searched once`() {
        let count = 1 << 20
        let line = [UInt8](repeating: UInt8(ascii: "x"), count: count)
        let lines = play(LineFraming(limit: count), line + [UInt8(ascii: "\n")], cuts: Array(1..<count))
        #expect(lines.frames.map(\.utf8.count) == [count])
    }

    @Test func `bytes that another caller consumed in between are not taken for searched ones`() throws {
        var framing = LineFraming()
        let input = Array("abcdef\nghi\n".utf8)
        try input.withUnsafeBytes { all in
            var bytes = ReceivedBytes(viewing: UnsafeRawBufferPointer(rebasing: all[..<4]), isLast: false, at: 0)
            let nothing = try framing.next(in: &bytes, isLast: false)
            // Somebody reads five bytes; two lines remain, the first of them shorter than what was searched.
            bytes = ReceivedBytes(viewing: UnsafeRawBufferPointer(rebasing: all[5...]), isLast: false, at: 5)
            let (first, second) = (try framing.next(in: &bytes, isLast: false), try framing.next(in: &bytes, isLast: false))
            #expect(nothing == nil && first == "f" && second == "ghi")
        }
    }

    @Test(arguments: [0, -1, .min]) func `a limit below one byte is a precondition failure`(limit: Int) async {
        await #expect(processExitsWith: .failure) { [limit] in _ = LineFraming(limit: limit) }
    }
}
