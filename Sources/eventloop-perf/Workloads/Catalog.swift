// Every case, in the order of the report.

enum Catalog {
    static var all: [Case] {
        W1Cascade.cases + W2aPosts.cases + W2aSignals.cases + W2bPingPong.cases + W2cPorts.cases + W3Timers.cases + W3OrderedTimers.cases
            + W3Firing.cases
            + W3Due.cases + W4Pass.cases + W5Observers.cases + W6Nested.cases + W7Echo.cases + W8Footprint.cases + W9ActorCalls.cases
            + W10MessagePort.cases + W11HTTP.cases + W12Hosted.cases + W13Observed.cases + W21Datagrams.cases
            + W14Streams.cases + W15AddRemove.cases + W17Connections.cases + W22Pipelining.cases + W23Stops.cases + W18Calls.cases
            + Idle.cases + [W12Hosted.idle] + withHTTP + withTLS
    }

    private static var withHTTP: [Case] {
        #if HTTP
        W20HTTPServer.cases
        #else
        []
        #endif
    }

    private static var withTLS: [Case] {
        #if TLS
        W14IdleTLS.cases
        #else
        []
        #endif
    }
}
