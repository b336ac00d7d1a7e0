// The same on Foundation, as its users write it.

import CoreFoundation
import Foundation

@main
struct Start {
    static func main() {
        let timer = Timer(fire: Date(), interval: 0, repeats: false) { _ in CFRunLoopStop(CFRunLoopGetCurrent()) }
        RunLoop.current.add(timer, forMode: .default)
        CFRunLoopRun()
    }
}
