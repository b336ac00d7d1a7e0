// Rules proved here:
// - Received bytes are visible in place, and leave by being consumed, taken, or taken as a line.
// - `takeLine` returns nil until an LF has come, and at the end the line without one.
// - Consuming more than there is, or less than nothing, is a precondition failure with a sentence.

import EventLoopStreams
import EventLoopTestSupport
import Testing

private func contents(_ bytes: borrowing ReceivedBytes) -> [UInt8] { bytes.withUnsafeBytes { Array($0) } }

@Suite struct ReceivedBytesTests {
    @Test func `bytes are visible, consumed and taken`() {
        var bytes = ReceivedBytes([1, 2, 3, 4, 5])
        #expect(!bytes.isLast && contents(bytes) == [1, 2, 3, 4, 5])
        bytes.consume(1)
        bytes.consume(0)
        let (rest, taken, count, consumed) = (contents(bytes), bytes.take(2), bytes.count, bytes.consumedCount)
        #expect(rest == [2, 3, 4, 5] && taken == [2, 3] && count == 2 && consumed == 3)
        let (nothing, last, end) = (bytes.take(0), bytes.take(2), contents(bytes))
        #expect(nothing == [] && last == [4, 5] && end == [])
    }

    @Test func `no bytes are visible as an empty buffer`() {
        var bytes = ReceivedBytes([], isLast: true)
        let (isLast, count, all, taken, line) = (bytes.isLast, bytes.count, contents(bytes), bytes.take(0), bytes.takeLine())
        #expect(isLast && count == 0 && all == [] && taken == [] && line == nil)
        bytes = ReceivedBytes(viewing: UnsafeRawBufferPointer(start: nil, count: 0), isLast: false)
        let (seen, other) = (contents(bytes), bytes.takeLine())
        #expect(seen == [] && other == nil)
    }

    @Test func `the bytes of a stream are seen where they are`() {
        let stored: [UInt8] = Array("ab\ncd".utf8)
        stored.withUnsafeBytes { all in
            var bytes = ReceivedBytes(viewing: all, isLast: false)
            let line = bytes.takeLine()
            let isInPlace = bytes.withUnsafeBytes { $0.baseAddress == all.baseAddress! + 3 }
            let consumed = bytes.consumedCount
            #expect(line == "ab" && isInPlace && consumed == 3)
        }
    }

    @Test func `lines are taken without their ends, and the rest stays until its LF comes`() {
        var bytes = ReceivedBytes(Array("one\r\n\ntw\ro\n\r\nrest".utf8))
        var lines: [String] = []
        while let line = bytes.takeLine() { lines.append(line) }
        let count = bytes.count
        #expect(lines == ["one", "", "tw\ro", ""] && count == 4)
    }

    @Test func `the last line may lack its LF when nothing comes after it`() {
        var bytes = ReceivedBytes(Array("one\ntwo\r".utf8), isLast: true)
        let (first, second, none) = (bytes.takeLine(), bytes.takeLine(), bytes.takeLine())
        #expect(first == "one" && second == "two\r" && none == nil)
    }

    @Test func `a line with invalid UTF-8 is repaired`() {
        var bytes = ReceivedBytes([0x61, 0x80, 0x62, 0x0A])
        let line = bytes.takeLine()
        #expect(line == "a\u{FFFD}b")
    }

    @Test func `an error that the body throws is passed on`() {
        let bytes = ReceivedBytes([1])
        do {
            try bytes.withUnsafeBytes { _ in throw CancellationError() }
            Issue.record("the error was lost")
        } catch { #expect(error is CancellationError) }
    }

    @Test(arguments: [4, -1, .max, .min]) func `consuming what is not there is a precondition failure`(count: Int) async {
        await #expect(processExitsWith: .failure) { [count] in
            var bytes = ReceivedBytes([1, 2, 3])
            bytes.consume(count)
        }
        await #expect(processExitsWith: .failure) { [count] in
            var bytes = ReceivedBytes([1, 2, 3])
            _ = bytes.take(count)
        }
    }
}
