// The code of docs/testing.md about XCTest, compiled and run. DocumentedCodeTests compares each block of the page with this file: change both.

import EventLoop
import EventLoopXCTest
import XCTest

final class AnswerTests: XCTestCase {
    func testAnAnswerArrivesOnTheMainLoop() {
        let answered = expectation(description: "answered")
        EventLoop.RunLoop.main.perform(after: .milliseconds(1)) { answered.fulfill() }
        wait(for: [answered], timeout: 5, running: .main)
    }
}
