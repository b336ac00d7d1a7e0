// The module can be used with the public interface.

import EventLoop
import EventLoopStreams
import Testing

@Suite struct ModuleTests {
    @Test func `the options of a stream have documented defaults`() {
        let options = ByteStream.Options()
        #expect(options.receiveLimit == 65_536 && options.highWater == 65_536 && options.lowWater == 16_384)
        #expect(options.idleTimeout == nil && options.writeTimeout == nil)
    }
}
