// Rules proved here (docs/observing.md, "Read the timeline"):
// - The page has everything it needs, and asks nobody for more.
// - Labels, names and titles never become markup or script.
// - The page has every event, and each string once.

import EventLoopTestSupport
import Foundation
import Testing

@testable import EventLoop
@testable import EventLoopObserving

@Suite(.bounded) struct TimelinePageTests {
    @Test func `the page allows its own style and script, and nothing else`() throws {
        let page = Recording.busy(10).timelineHTML()
        let policy = try #require(page.firstRange(of: "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "))
        for element in ["<style", "<script", "<link"] { #expect(try #require(page.firstRange(of: element)).lowerBound > policy.lowerBound) }
        for address in ["http:", "https:", "//www", "src=", "@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "import("] {
            #expect(!page.contains(address), "\(address)")
        }
    }

    @Test func `the script puts text into the document only as text`() {
        let page = Recording.busy(10).timelineHTML()
        for call in [
            "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "createContextualFragment", "eval(", "new Function", "srcdoc",
        ] {
            #expect(!page.contains(call), "\(call)")
        }
    }

    @Test(arguments: hostileTexts)
    func `every text arrives as it is, and none ends the element`(text: String) throws {
        let event = Recording.Event.span(.timer, 0, 5, mode: .init(text), label: text, at: text)
        let page = Recording.timelineHTML(title: text, [(text, Recording([event]))])
        let harmless = Recording.timelineHTML(title: "a", [("b", Recording([.span(.timer, 0, 5, mode: "c", label: "c", at: "c")]))])
        // The markup is that of a page with harmless text.
        for character in "<>" { #expect(page.count(where: { $0 == character }) == harmless.count(where: { $0 == character })) }
        let data = dataText(of: page)
        #expect(!data.unicodeScalars.contains { "<>&'\u{2028}\u{2029}".unicodeScalars.contains($0) || $0.value < 0x20 })
        let read = try readData(of: page)
        #expect(read.loops[0].name.unicodeScalars.elementsEqual(text.unicodeScalars))
        #expect(read.strings.count == 1 && read.strings[0].unicodeScalars.elementsEqual(text.unicodeScalars))
    }

    @Test func `markup in the title is text`() {
        let page = Recording([]).timelineHTML(title: "<b>\"a\" & 'b'</b>")
        let escaped = "&lt;b&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/b&gt;"
        #expect(page.contains("<title>\(escaped)</title>"))
        #expect(page.contains("<h1><bdi>\(escaped)</bdi></h1>"))
        #expect(!page.contains("<b>\"a\""))
    }

    @Test func `the page says since when the events of a loop are all there`() throws {
        var first = Recording([.span(.run, 110, 400), .span(.pass, 110, 400), .span(.sleep, 320, 390)], overwritten: 3)
        first.completeSince = RunLoop.Instant(nanoseconds: 300)
        let second = Recording([.span(.timer, 100, 101)], loopID: 2)
        let data = try readData(of: Recording.timelineHTML([("one", first), ("two", second)]))
        #expect(data.loops.map(\.since) == [200, 0])
    }

    @Test func `the page has every event of every loop, by start, on one axis`() throws {
        let first = Recording([.span(.pass, 110, 200), .span(.sleep, 120, 150), .span(.timer, 150, 190, label: "a")], overwritten: 3)
        let second = Recording([.span(.timer, 100, 101, label: "a"), .span(.wakeUp, 105, 105)], loopID: 2)
        let data = try readData(of: Recording.timelineHTML([("one", first), ("two", second)]))
        #expect(data.loops.map(\.name) == ["one", "two"])
        #expect(data.loops.map(\.overwritten) == [3, 0])
        #expect(data.events(of: 0) == ["pass 10+90", "sleep 20+30", "timer a 50+40"])
        #expect(data.events(of: 1) == ["timer a 0+1", "wakeUp 5+0"])
        #expect(data.kinds == Recording.Kind.allCases.map(\.rawValue))
    }

    @Test func `an arrow names the loops and events at its ends`() throws {
        let main = Recording([.span(.pass, 0, 50), .span(.timer, 10, 20)], posts: [.init(to: 2, flow: 9, at: 15)])
        let worker = Recording([.span(.pass, 0, 50), .span(.block, 20, 30, flow: 9)], loopID: 2)
        #expect(try readData(of: Recording.timelineHTML([("main", main), ("worker", worker)])).arrows == [0, 1, 15, 1, 1])
    }

    @Test func `strings and combinations are written once`() throws {
        let recording = Recording.busy(65_536, label: "a label that is much longer than an event may be")
        let page = recording.timelineHTML()
        let data = try readData(of: page)
        #expect(data.loops[0].events.count == 3 * recording.events.count)
        #expect(data.strings == ["default", "a label that is much longer than an event may be"])
        #expect(data.groups.count == 4 * 5)
        #expect(page.utf8.count < 120_000 + 16 * recording.events.count)
    }

    @Test func `labels with the same look and other bytes stay apart`() throws {
        // é as one scalar, and as a letter with an accent.
        let labels = ["caf\u{E9}", "cafe\u{301}"]
        let recording = Recording([.span(.timer, 0, 5, label: labels[0]), .span(.timer, 10, 15, label: labels[1])])
        let data = try readData(of: recording.timelineHTML())
        let written = data.strings.filter { $0.hasPrefix("caf") }.map { Array($0.utf8) }
        #expect(written == labels.map { Array($0.utf8) })
        #expect(data.groups.count == 2 * 5)
    }

    @Test func `a page of nothing says so`() throws {
        for page in [Recording([]).timelineHTML(), Recording.timelineHTML([])] {
            #expect(page.contains("Nothing was recorded."))
            #expect(try readData(of: page).strings.isEmpty)
        }
    }

    /// For the tests in a browser (Scripts/test-pictures), which need pages of known contents.
    @Test(.enabled(if: ProcessInfo.processInfo.environment["EVENTLOOP_PICTURES"] != nil))
    func `pages for the tests in a browser are written`() throws {
        let folder = URL(fileURLWithPath: try #require(ProcessInfo.processInfo.environment["EVENTLOOP_PICTURES"]))
        let hostile = hostileTexts.enumerated().map { number, text in
            Recording.Event.span(.timer, Int64(number) * 1000, Int64(number) * 1000 + 900, mode: .init(text), label: text, at: text)
        }
        let main = Recording(
            [.span(.run, 0, 1_000_000), .span(.pass, 0, 1_000_000), .span(.timer, 100_000, 400_000, label: "ask")],
            posts: [.init(to: 2, flow: 9, at: 250_000)])
        let worker = Recording(
            [.span(.run, 0, 1_000_000), .span(.pass, 0, 1_000_000), .span(.block, 500_000, 700_000, label: "answer", flow: 9)], loopID: 2)
        // A run of two seconds, of which the last ten milliseconds are there.
        var cut = Recording(
            [.span(.run, 0, 2_000_000_000), .span(.pass, 1_990_000_000, 2_000_000_000), .span(.sleep, 1_991_000_000, 2_000_000_000)],
            overwritten: 1_000)
        cut.completeSince = RunLoop.Instant(nanoseconds: 1_990_000_000)
        let pages = [
            "cut": cut.timelineHTML(),
            "empty": Recording.timelineHTML([]), "small": Recording.busy(100).timelineHTML(),
            "large": Recording.busy(65_536).timelineHTML(),
            "hostile": Recording.timelineHTML(title: hostileTexts.joined(), hostileTexts.map { ($0, Recording(hostile)) }),
            "pair": Recording.timelineHTML(title: "Pair", [("main", main), ("worker", worker)]),
        ]
        for (name, page) in pages { try page.write(to: folder.appendingPathComponent(name + ".html"), atomically: true, encoding: .utf8) }
    }
}
