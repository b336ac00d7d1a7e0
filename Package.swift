// swift-tools-version: 6.1
import PackageDescription

// Every Swift target builds in the Swift 6 language mode. Upcoming features that make the border between the
// layers honest: an import must name its access level where it is not internal, and members come only from
// modules the file itself imports.
let strict: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

let package = Package(
    name: "EventLoop",
    platforms: [.macOS(.v15)],
    products: [
        .library(name: "EventLoop", targets: ["EventLoop"]),
        .library(name: "EventLoopFoundation", targets: ["EventLoopFoundation"]),
        .library(name: "EventLoopTesting", targets: ["EventLoopTesting"]),
        .executable(name: "eventloop-demo", targets: ["eventloop-demo"]),
    ],
    targets: [
        // libevent 2.1: module map and shim header, nothing else.
        .systemLibrary(
            name: "CLibevent", pkgConfig: "libevent",
            providers: [.apt(["libevent-dev"]), .brew(["libevent"])]),
        // What Swift cannot say itself: a thread-local variable, and weak declarations of the two Dispatch
        // entry points that run loops use, so that Dispatch is never imported and may be absent.
        .target(name: "CPlatform"),
        .target(name: "EventLoop", dependencies: ["CLibevent", "CPlatform"], swiftSettings: strict),
        // Date and TimeInterval forms with Foundation's labels. The only library here that imports Foundation.
        .target(name: "EventLoopFoundation", dependencies: ["EventLoop"], swiftSettings: strict),
        // For users' tests. The only library here that links Swift Testing.
        .target(name: "EventLoopTesting", dependencies: ["EventLoop"], swiftSettings: strict),
        .executableTarget(name: "eventloop-demo", dependencies: ["EventLoop", "CLibevent"], swiftSettings: strict),
        .target(
            name: "EventLoopTestSupport", dependencies: ["EventLoop"],
            path: "Tests/EventLoopTestSupport", swiftSettings: strict),
        // A program with an async main, which tests start.
        .executableTarget(
            name: "eventloop-async-main-probe", dependencies: ["EventLoop"], path: "Tests/AsyncMainProbe", swiftSettings: strict),
        // The other process of the tests of named ports.
        .executableTarget(name: "eventloop-port-peer", dependencies: ["EventLoop"], path: "Tests/PortPeer", swiftSettings: strict),
        .testTarget(
            name: "EventLoopTests",
            dependencies: [
                "EventLoop", "EventLoopTestSupport", "CLibevent", "CPlatform", "eventloop-async-main-probe", "eventloop-port-peer",
            ], swiftSettings: strict),
        .testTarget(
            name: "DifferentialTests", dependencies: ["EventLoop", "EventLoopTestSupport"], swiftSettings: strict),
        .testTarget(
            name: "SmallWorldsTests", dependencies: ["EventLoop", "EventLoopTestSupport"], swiftSettings: strict),
        .testTarget(
            name: "EventLoopMainThreadTests", dependencies: ["EventLoop", "EventLoopTestSupport", "CLibevent"], swiftSettings: strict),
        // One program twice, the same but for its imports: written for Foundation, and moved over.
        .target(name: "MigrationBefore", path: "Tests/Migration/Before", swiftSettings: strict),
        .target(
            name: "MigrationAfter", dependencies: ["EventLoop", "EventLoopFoundation"],
            path: "Tests/Migration/After", swiftSettings: strict),
        .testTarget(
            name: "EventLoopFoundationTests",
            dependencies: ["EventLoop", "EventLoopFoundation", "EventLoopTestSupport", "MigrationBefore", "MigrationAfter"],
            swiftSettings: strict),
        .testTarget(
            name: "EventLoopTestingTests", dependencies: ["EventLoop", "EventLoopTesting", "EventLoopTestSupport"],
            swiftSettings: strict),
    ],
    swiftLanguageModes: [.v6]
)

#if os(Linux)
// The library against other run loops. It counts system calls with ptrace and allocations in front of glibc: Linux only.
package.targets += [
    .target(name: "CPerfPeers", dependencies: ["CLibevent"], linkerSettings: [.linkedLibrary("event_pthreads")]),
    .executableTarget(name: "eventloop-perf", dependencies: ["EventLoop", "CPerfPeers"], swiftSettings: strict),
    // The smallest programs, which eventloop-perf starts and times.
    .executableTarget(name: "eventloop-start", dependencies: ["EventLoop"], swiftSettings: strict),
    .executableTarget(name: "eventloop-start-foundation", swiftSettings: strict),
    .executableTarget(name: "eventloop-start-libevent", dependencies: ["CLibevent"]),
    // Everything at once for half an hour: what grows, or is lost.
    .executableTarget(name: "eventloop-soak", dependencies: ["EventLoop"], path: "Tests/Soak", swiftSettings: strict),
    .testTarget(name: "PerfTests", dependencies: ["eventloop-perf", "CPerfPeers"], swiftSettings: strict),
    // Definitions in front of glibc's that fail to order, and the program that has the library meet them. The tests start it, but no test
    // target depends on it: SwiftPM would link its objects, and with them those definitions, into the test bundle.
    .target(name: "CFaults", path: "Tests/CFaults"),
    .executableTarget(
        name: "eventloop-fault-probe", dependencies: ["EventLoop", "CFaults"], path: "Tests/FaultProbe", swiftSettings: strict),
]
#endif
