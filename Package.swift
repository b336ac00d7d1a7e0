// swift-tools-version: 6.1
import PackageDescription

// Every Swift target builds in the Swift 6 language mode. Upcoming features enforce the borders between modules: an import names its access
// level if it is not internal, and members come only from modules that the file itself imports.
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
        // The functions of CFRunLoop.h.
        .library(name: "EventLoopCF", targets: ["EventLoopCF"]),
        .library(name: "EventLoopTesting", targets: ["EventLoopTesting"]),
        .library(name: "EventLoopXCTest", targets: ["EventLoopXCTest"]),
        // Pictures of recordings, and the watchdog.
        .library(name: "EventLoopObserving", targets: ["EventLoopObserving"]),
        // Named ports between threads and processes.
        .library(name: "EventLoopMessagePorts", targets: ["EventLoopMessagePorts"]),
        // Notifications, signs of life and socket activation for systemd.
        .library(name: "EventLoopSupervisor", targets: ["EventLoopSupervisor"]),
        // Buffered byte streams, framing, servers, names.
        .library(name: "EventLoopStreams", targets: ["EventLoopStreams"]),
        // Datagram sockets, UDP and Unix.
        .library(name: "EventLoopDatagrams", targets: ["EventLoopDatagrams"]),
        // For packages that enable the trait `HTTP`; empty otherwise.
        .library(name: "EventLoopHTTP", targets: ["EventLoopHTTP"]),
        // For users' tests: a whole async program on one thread, in virtual time, in an order that a seed decides.
        .library(name: "EventLoopSimulation", targets: ["EventLoopSimulation"]),
        // For packages that enable the trait `TLS`; empty otherwise.
        .library(name: "EventLoopTLS", targets: ["EventLoopTLS"]),
        // For packages that enable the trait of the same name; empty otherwise.
        .library(name: "EventLoopLogging", targets: ["EventLoopLogging"]),
        .library(name: "EventLoopMetrics", targets: ["EventLoopMetrics"]),
        .library(name: "EventLoopServiceLifecycle", targets: ["EventLoopServiceLifecycle"]),
        .library(name: "EventLoopNIO", targets: ["EventLoopNIO"]),
        // All of libevent, for programs that call it beside a run loop.
        .library(name: "CLibevent", targets: ["CLibevent"]),
        .executable(name: "eventloop-demo", targets: ["eventloop-demo"]),
    ],
    traits: [
        .trait(name: "OpenSSL", description: "Adds the module CLibeventOpenSSL: libevent's TLS over OpenSSL. Needs OpenSSL's headers."),
        .trait(name: "TLS", description: "Fills the module EventLoopTLS: TLS for byte streams over OpenSSL 3. Needs OpenSSL's headers."),
        .trait(name: "HTTP", description: "Fills the module EventLoopHTTP: an HTTP/1.1 server, with the types of swift-http-types."),
        .trait(name: "Logging", description: "Fills the module EventLoopLogging: warnings and stalls for swift-log."),
        .trait(name: "Metrics", description: "Fills the module EventLoopMetrics: the statistics of loops for swift-metrics."),
        .trait(
            name: "ServiceLifecycle",
            description: "Fills the module EventLoopServiceLifecycle: threads as a service of swift-service-lifecycle."),
        .trait(
            name: "NIO", description: "Fills the module EventLoopNIO: a run loop on the thread of one of SwiftNIO's event loops. Linux."),
    ],
    // SwiftPM fetches a package only if a product of it is used under the traits that are enabled: by default none of these.
    dependencies: [
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.4.0"),
    ],
    targets: [
        // libevent 2.1 or 2.2: module map and shim header, nothing else. Not libevent.pc: see the module map.
        .systemLibrary(
            name: "CLibevent", pkgConfig: "libevent_core",
            providers: [.apt(["libevent-dev"]), .brew(["libevent"])]),
        // libevent's bufferevents over OpenSSL, only for packages that enable the trait.
        .systemLibrary(
            name: "CLibeventOpenSSL", pkgConfig: "openssl",
            providers: [.apt(["libevent-dev", "libssl-dev"]), .brew(["libevent", "openssl@3"])]),
        // What Swift cannot express: for example a thread-local variable, and weak declarations of the two Dispatch
        // entry points for run loops, so that Dispatch is never imported and may be absent.
        .target(name: "CPlatform"),
        // Glibc, Musl or Darwin, under one name.
        .target(name: "EventLoopLibC", swiftSettings: strict),
        .target(
            name: "EventLoop",
            dependencies: [
                "CLibevent", "CPlatform", "EventLoopLibC", .target(name: "CLibeventOpenSSL", condition: .when(traits: ["OpenSSL"])),
            ],
            swiftSettings: strict),
        // Date and TimeInterval forms with Foundation's labels. The only library here that imports Foundation.
        .target(name: "EventLoopFoundation", dependencies: ["EventLoop"], swiftSettings: strict),
        // The functions of CFRunLoop.h and CFSocket.h, without Core Foundation.
        .target(name: "EventLoopCF", dependencies: ["EventLoop", "EventLoopLibC", "CPlatform"], swiftSettings: strict),
        // For users' tests. The only library here that links Swift Testing.
        .target(name: "EventLoopTesting", dependencies: ["EventLoop", "EventLoopStreams", "EventLoopDatagrams"], swiftSettings: strict),
        // For users' tests with XCTest. Not part of EventLoopTesting, because XCTest exports Foundation, with its RunLoop and its Timer.
        .target(name: "EventLoopXCTest", dependencies: ["EventLoop"], swiftSettings: strict),
        // A service manager. Cold parts of the loop that few programs use are modules of their own, on `package` declarations of the core.
        .target(name: "CStacks", dependencies: ["CPlatform"]),
        // `make page` embeds the page's own files.
        .target(
            name: "EventLoopObserving", dependencies: ["EventLoop", "EventLoopLibC", "CPlatform", "CStacks"],
            exclude: ["Pictures/Page"], swiftSettings: strict),
        .target(name: "EventLoopMessagePorts", dependencies: ["EventLoop", "EventLoopLibC", "CPlatform"], swiftSettings: strict),
        .target(name: "EventLoopSupervisor", dependencies: ["EventLoop", "EventLoopLibC", "CPlatform"], swiftSettings: strict),
        // Byte streams.
        .target(name: "CStreams", dependencies: ["CPlatform"]),
        .target(name: "EventLoopStreams", dependencies: ["EventLoop", "EventLoopLibC", "CPlatform", "CStreams"], swiftSettings: strict),
        // Datagram sockets, with the errors and the random numbers of EventLoopStreams.
        .target(name: "CDatagrams", dependencies: ["CPlatform"]),
        .target(
            name: "EventLoopDatagrams", dependencies: ["EventLoop", "EventLoopLibC", "EventLoopStreams", "CDatagrams", "CPlatform"],
            swiftSettings: strict),
        // An HTTP server.
        .target(
            name: "EventLoopHTTP",
            dependencies: [
                "CPlatform", "EventLoop", "EventLoopLibC", "EventLoopStreams",
                .product(name: "HTTPTypes", package: "swift-http-types", condition: .when(traits: ["HTTP"])),
            ], swiftSettings: strict),
        // The scheduler of simulated programs, and the functions of the Swift runtime and of libc that it replaces in the process. Only for
        // test targets: what links it has those replacements.
        .target(name: "CSimulation"),
        .target(
            name: "EventLoopSimulation",
            dependencies: [
                "EventLoop", "EventLoopLibC", "EventLoopObserving", "EventLoopStreams", "CSimulation", "CPlatform", "CStacks",
            ],
            swiftSettings: strict),
        // OpenSSL 3, only for packages that enable the trait.
        .systemLibrary(
            name: "COpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"]), .brew(["openssl@3"])]),
        .target(
            name: "EventLoopTLS",
            dependencies: ["EventLoop", "EventLoopLibC", "EventLoopStreams", .target(name: "COpenSSL", condition: .when(traits: ["TLS"]))],
            swiftSettings: strict),
        // What servers in Swift share, each behind a trait.
        .target(
            name: "EventLoopLogging",
            dependencies: [
                "EventLoop", "EventLoopObserving", .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Logging"])),
            ],
            swiftSettings: strict),
        .target(
            name: "EventLoopMetrics",
            dependencies: [
                "CPlatform", "EventLoop", .product(name: "CoreMetrics", package: "swift-metrics", condition: .when(traits: ["Metrics"])),
            ],
            swiftSettings: strict),
        .target(
            name: "EventLoopServiceLifecycle",
            dependencies: [
                "EventLoop", "EventLoopHTTP", "EventLoopStreams", "EventLoopSupervisor",
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle", condition: .when(traits: ["ServiceLifecycle"])),
            ], swiftSettings: strict),
        // When NIO sleeps, for those who observe a hosted loop.
        .target(name: "CHostPasses"),
        .target(
            name: "EventLoopNIO",
            dependencies: [
                "EventLoop", "CPlatform", "CHostPasses", .product(name: "NIOCore", package: "swift-nio", condition: .when(traits: ["NIO"])),
                .product(name: "NIOPosix", package: "swift-nio", condition: .when(traits: ["NIO"])),
            ], swiftSettings: strict),
        .executableTarget(
            name: "eventloop-demo",
            dependencies: ["EventLoop", "EventLoopMessagePorts", "EventLoopObserving", "EventLoopStreams"], swiftSettings: strict),
        .target(
            name: "EventLoopTestSupport", dependencies: ["EventLoop"],
            path: "Tests/EventLoopTestSupport", swiftSettings: strict),
        // A program with an async main, started by tests.
        .executableTarget(
            name: "eventloop-async-main-probe", dependencies: ["EventLoop"], path: "Tests/AsyncMainProbe", swiftSettings: strict),
        // The other process in tests of message ports.
        .executableTarget(
            name: "eventloop-port-peer", dependencies: ["EventLoop", "EventLoopMessagePorts"], path: "Tests/PortPeer",
            swiftSettings: strict),
        .testTarget(
            name: "EventLoopTests",
            dependencies: [
                "EventLoop", "EventLoopCF", "EventLoopMessagePorts", "EventLoopObserving", "EventLoopSupervisor", "EventLoopTestSupport",
                "CLibevent", "CPlatform", "CStacks",
                "eventloop-async-main-probe",
                "eventloop-port-peer",
            ], swiftSettings: strict),
        // Sources of the real CFRunLoop, for the tests that compare with it.
        .target(name: "RealCFRunLoop", path: "Tests/RealCFRunLoop", swiftSettings: strict),
        .testTarget(
            name: "DifferentialTests", dependencies: ["EventLoop", "EventLoopCF", "EventLoopTestSupport", "RealCFRunLoop"],
            swiftSettings: strict),
        .testTarget(
            name: "EventLoopCFTests", dependencies: ["EventLoop", "EventLoopCF", "EventLoopTestSupport"], swiftSettings: strict),
        .testTarget(
            name: "SmallWorldsTests", dependencies: ["EventLoop", "EventLoopTestSupport", "RealCFRunLoop"], swiftSettings: strict),
        .testTarget(
            name: "EventLoopMainThreadTests", dependencies: ["EventLoop", "EventLoopObserving", "EventLoopTestSupport", "CLibevent"],
            swiftSettings: strict),
        // Two copies of one program that differ only in their imports: for Foundation, and for this package.
        .target(name: "MigrationBefore", path: "Tests/Migration/Before", swiftSettings: strict),
        .target(
            name: "MigrationAfter", dependencies: ["EventLoop", "EventLoopFoundation"],
            path: "Tests/Migration/After", swiftSettings: strict),
        .testTarget(
            name: "EventLoopFoundationTests",
            dependencies: ["EventLoop", "EventLoopFoundation", "EventLoopTestSupport", "MigrationBefore", "MigrationAfter"],
            swiftSettings: strict),
        .testTarget(
            name: "EventLoopStreamsTests",
            dependencies: ["EventLoop", "EventLoopStreams", "EventLoopTesting", "CStreams", "EventLoopTestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "EventLoopDatagramsTests",
            dependencies: ["EventLoop", "EventLoopStreams", "EventLoopDatagrams", "EventLoopTestSupport"], swiftSettings: strict),
        .testTarget(
            name: "EventLoopTestingTests",
            dependencies: ["EventLoop", "EventLoopStreams", "EventLoopDatagrams", "EventLoopTesting", "EventLoopTestSupport"],
            swiftSettings: strict),
        // The programs of the pages, and the tests that compile and run the code of the pages.
        .executableTarget(
            name: "eventloop-documented-timer", dependencies: ["EventLoop"], path: "Tests/DocumentedPrograms/FirstTimer",
            swiftSettings: strict),
        .executableTarget(
            name: "eventloop-documented-top-level", dependencies: ["EventLoop"], path: "Tests/DocumentedPrograms/TopLevel",
            swiftSettings: strict),
        .executableTarget(
            name: "eventloop-documented-server", dependencies: ["EventLoop", "EventLoopStreams"],
            path: "Tests/DocumentedPrograms/Server", swiftSettings: strict),
        .executableTarget(
            name: "eventloop-documented-echo", dependencies: ["EventLoop", "EventLoopStreams"],
            path: "Tests/DocumentedPrograms/EchoServer", swiftSettings: strict),
        .testTarget(
            name: "DocumentationTests",
            dependencies: [
                "EventLoop", "EventLoopMessagePorts", "EventLoopStreams", "EventLoopTesting", "EventLoopTestSupport",
                "eventloop-documented-timer", "eventloop-documented-server", "eventloop-documented-echo", "eventloop-documented-top-level",
            ], swiftSettings: strict),
        .testTarget(
            name: "EventLoopSimulationTests",
            dependencies: [
                "EventLoop", "EventLoopStreams", "CStreams", "EventLoopDatagrams", "EventLoopTesting", "EventLoopSimulation",
                "EventLoopTestSupport",
            ],
            swiftSettings: strict),
        // XCTest, whose methods run on the main thread.
        .testTarget(
            name: "EventLoopXCTestTests", dependencies: ["EventLoop", "EventLoopTestSupport", "EventLoopXCTest"], swiftSettings: strict),
    ],
    swiftLanguageModes: [.v6]
)

#if os(Linux)
// Compares the library with other run loops. Linux only: it counts system calls with ptrace, and replaces glibc's allocator.
package.targets += [
    .target(name: "CPerfPeers", dependencies: ["CLibevent"], linkerSettings: [.linkedLibrary("event_pthreads")]),
    .executableTarget(
        name: "eventloop-perf",
        dependencies: [
            "EventLoop", "EventLoopMessagePorts", "EventLoopObserving", "EventLoopStreams", "CPerfPeers",
            "EventLoopDatagrams", "EventLoopHTTP", "EventLoopTLS", .target(name: "COpenSSL", condition: .when(traits: ["TLS"])),
            .product(name: "HTTPTypes", package: "swift-http-types", condition: .when(traits: ["HTTP"])),
        ], swiftSettings: strict),
    // The smallest programs; eventloop-perf starts and times them.
    .executableTarget(name: "eventloop-start", dependencies: ["EventLoop"], swiftSettings: strict),
    .executableTarget(name: "eventloop-start-foundation", swiftSettings: strict),
    .executableTarget(name: "eventloop-start-libevent", dependencies: ["CLibevent"]),
    // Uses everything at once for half an hour, to find what grows or is lost.
    .executableTarget(
        name: "eventloop-soak", dependencies: ["EventLoop", "EventLoopMessagePorts"], path: "Tests/Soak", swiftSettings: strict),
    // Starts the demo's program, and drives it from outside.
    .testTarget(name: "DemoTests", dependencies: ["EventLoopTestSupport", "eventloop-demo"], swiftSettings: strict),
    .testTarget(name: "PerfTests", dependencies: ["eventloop-perf", "CPerfPeers"], swiftSettings: strict),
    // Replacements of glibc functions that fail on demand, and the program that runs the library with them. Tests start the program, but no
    // test target depends on it: SwiftPM would link its objects, and with them the replacements, into the test bundle.
    .target(name: "CFaults", path: "Tests/CFaults"),
    // Takes backtraces of a thread at every instruction. C, because it single-steps code of assembly with unwind tables that are wrong.
    .executableTarget(name: "eventloop-step-probe", dependencies: ["CStacks"], path: "Tests/StepProbe", exclude: ["small.inc"]),
    .executableTarget(
        name: "eventloop-fault-probe", dependencies: ["EventLoop", "EventLoopMessagePorts", "EventLoopStreams", "CFaults"],
        path: "Tests/FaultProbe",
        swiftSettings: strict),
]
#endif

// For `make test-tsan TAGS=…`: without the folders and files in which no suite has one of the tags (Scripts/tagged), and the targets that only those
// folders use: a third of a build.
if let leftOut = Context.environment["EVENTLOOP_LEFT_OUT_TESTS"]?.split(separator: " "), !leftOut.isEmpty {
    func dependencies(of targets: [Target]) -> Set<String> {
        let names = targets.flatMap(\.dependencies).compactMap { dependency -> String? in
            guard case .byNameItem(let name, _) = dependency else { return nil }
            return name
        }
        return Set(names)
    }
    let all = package.targets
    package.targets.removeAll { leftOut.contains("Tests/\($0.name)") }
    let needed = dependencies(of: package.targets).union(package.products.map(\.name))
    let unneeded = dependencies(of: all).subtracting(needed)
    package.targets.removeAll { unneeded.contains($0.name) }
    for target in package.targets where target.type == .test {
        let folder = "Tests/\(target.name)/"
        target.exclude += leftOut.filter { $0.hasPrefix(folder) }.map { String($0.dropFirst(folder.count)) }
    }
}
