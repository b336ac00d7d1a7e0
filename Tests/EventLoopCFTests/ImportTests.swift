// Rules proved here, with the compiler:
// - Beside Core Foundation, this module's names are ambiguous, and the compiler shows the cure.
// - Beside Foundation, the functions of this module are the only ones of their names. `RunLoop` and `Timer` are ambiguous, and the compiler
//   shows the cure.
// - Beside FoundationEssentials nothing is ambiguous.
// - What does not exist without Core Foundation names the call to use.

#if os(Linux)

import Foundation
import Testing

/// What the compiler says about a file that imports this module and `others`. Empty if the file compiles.
private func diagnostics(_ code: String, beside others: String...) throws -> String {
    try diagnostics(of: (others + ["EventLoopCF"]).map { "import \($0)\n" }.joined() + "func test() {\n\(code)\n}\n")
}

@Suite struct ImportTests {
    @Test(arguments: [
        "CFRunLoopRun()", "_ = CFRunLoopGetCurrent()", "_ = CFRunLoopGetMain()", "let loop: CFRunLoop? = nil",
        "let mode: CFRunLoopMode? = nil",
        "CFRunLoopRunInMode(kCFRunLoopDefaultMode, 1, false)", "let timer: CFRunLoopTimer? = nil", "_ = CFRunLoopTimerContext()",
        "_ = CFRunLoopSourceContext()", "let socket: CFSocket? = nil", "let data: CFData? = nil", "_ = CFSocketContext()",
    ])
    func `beside Core Foundation, a name is ambiguous, and the compiler shows the cure`(code: String) throws {
        let text = try diagnostics(code, beside: "CoreFoundation")
        #expect(text.contains("ambiguous"))
        #expect(text.contains("remove the import of CoreFoundation"))
    }

    @Test(arguments: ["let loop: RunLoop? = nil", "let timer: Timer? = nil"])
    func `beside Foundation, the names of its loop and timer are ambiguous, and the compiler shows the cure`(code: String) throws {
        let text = try diagnostics(code, beside: "Foundation")
        #expect(text.contains("is ambiguous for type lookup in this context"))
        #expect(text.contains("import FoundationEssentials instead of Foundation"))
    }

    @Test func `beside Foundation, its current loop cannot be used by accident`() throws {
        #expect(try diagnostics("RunLoop.current.run()", beside: "Foundation").contains("ambiguous use of 'current'"))
    }

    @Test(arguments: ["Foundation", "FoundationEssentials"])
    func `beside Foundation, the functions are those of this module`(module: String) throws {
        let code = """
            let loop: EventLoopCF.RunLoop = CFRunLoopGetCurrent()
            CFRunLoopPerformBlock(loop, kCFRunLoopDefaultMode) {}
            CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false)
            let data: EventLoopCF.CFData = CFDataCreate(nil, [1], 1)
            let socket: EventLoopCF.CFSocket? = CFSocketCreate(nil, 0, 0, 0, 0, nil, nil)
            _ = (Date(), data, socket)
            """
        #expect(try diagnostics(code, beside: module) == "")
    }

    @Test func `beside FoundationEssentials, the names of the loop and the timer are those of this module`() throws {
        let code = "let loop: RunLoop = CFRunLoopGetMain(); let timer: Timer? = nil; _ = (loop, timer, Date())"
        #expect(try diagnostics(code, beside: "FoundationEssentials") == "")
    }

    @Test(arguments: [
        ("CFRelease(CFRunLoopGetMain())", "remove the call"), ("let context: CFRunLoopSourceContext1? = nil", "RunLoop.DescriptorSource"),
        ("_ = CFSocketRegisterValue(nil, 1, nil, nil)", "RunLoop.LocalMessagePort"), ("_ = kCFSocketNameKey", "remove the key"),
    ])
    func `what cannot exist names the call to use`(code: String, cure: String) throws {
        let text = try diagnostics(code)
        #expect(text.contains("is unavailable") && text.contains(cure))
    }
}

#endif
