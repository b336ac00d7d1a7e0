// swift-tools-version: 6.1
// SwiftNIO on a run loop's thread: a program, and the tests of EventLoopNIO together with what is written for NIO. This is a separate package,
// because building Hummingbird and the libraries below it takes minutes.
//
// EVENTLOOP_NIO_VERSION=2.101.2 builds `NIOTests` only, with this version of NIO; the other libraries need a recent one.
import Foundation
import PackageDescription

let strict: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

func product(_ name: String, _ package: String) -> Target.Dependency { .product(name: name, package: package) }

let common: [Target.Dependency] = ["EventLoop", "EventLoopNIO", "EventLoopObserving", "CLibevent"].map { product($0, "EventLoop") }
let nio: [Target.Dependency] = ["NIOCore", "NIOEmbedded", "NIOHTTP1", "NIOPosix", "NIOWebSocket"].map { product($0, "swift-nio") }

/// SwiftPM cannot check whether a system library is installed. Scripts/install-libraries installs this one.
let hasHiredis = ["/usr/include", "/usr/local/include", "/opt/homebrew/include"].contains {
    FileManager.default.fileExists(atPath: "\($0)/hiredis/async.h")
}

let version = ProcessInfo.processInfo.environment["EVENTLOOP_NIO_VERSION"]

let program: [Target] = [
    .systemLibrary(name: "CHiredis", providers: [.apt(["libhiredis-dev"]), .brew(["hiredis"])]),
    .executableTarget(
        name: "hummingbird-jobs",
        dependencies: common + nio + ["CHiredis", product("Hummingbird", "hummingbird")], swiftSettings: strict),
]

let ecosystem: [Target] =
    (hasHiredis ? program : []) + [
        .testTarget(
            name: "EcosystemTests",
            dependencies: common + nio + [
                "TestSupport", product("AsyncHTTPClient", "async-http-client"), product("Hummingbird", "hummingbird"),
                product("NIOHTTP2", "swift-nio-http2"), product("NIOSSL", "swift-nio-ssl"),
                product("ServiceLifecycle", "swift-service-lifecycle"), product("Logging", "swift-log"),
            ] + (hasHiredis ? ["hummingbird-jobs"] : []), swiftSettings: strict)
    ]

let package = Package(
    name: "NIOExamples",
    platforms: [.macOS(.v15)],
    dependencies: [
        .package(name: "EventLoop", path: "../..", traits: ["NIO"]),
        version.map { .package(url: "https://github.com/apple/swift-nio", exact: .init(stringLiteral: $0)) }
            ?? .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
    ]
        + (version != nil
            ? []
            : [
                .package(url: "https://github.com/apple/swift-nio-http2", from: "1.46.0"),
                .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
                .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1", traits: []),
                .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
                .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
                .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
            ]),
    targets: [
        // `Support` is a link to the tools of the tests in the package above.
        .target(name: "TestSupport", dependencies: common, path: "Tests/Support", swiftSettings: strict),
        // Its main thread is an event loop of NIO. Started by tests.
        .executableTarget(name: "nio-main-probe", dependencies: common + nio, path: "Tests/MainProbe", swiftSettings: strict),
        .testTarget(name: "NIOTests", dependencies: common + nio + ["TestSupport", "nio-main-probe"], swiftSettings: strict),
    ] + (version != nil ? [] : ecosystem),
    swiftLanguageModes: [.v6]
)
