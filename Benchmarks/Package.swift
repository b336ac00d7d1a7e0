// swift-tools-version: 6.1
// Compares the library with run loops that it does not depend on. This is a separate package, so that users of the library do not fetch
// them. The harness and the workloads are those of ../Sources/eventloop-perf, by symbolic links.
import Foundation
import PackageDescription

let strict: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

// SwiftPM cannot check whether a system library is installed, so we look for its header. A missing library is left out, and the program
// reports that.
func has(_ header: String) -> Bool {
    ["/usr/include", "/usr/local/include"].contains { FileManager.default.fileExists(atPath: "\($0)/\(header)") }
}

var peers: [Target] = []
var dependencies: [Target.Dependency] = []
var present: [SwiftSetting] = []
if has("uv.h") {
    peers.append(.target(name: "CLibuvPeer", dependencies: ["CPerfPeers"], linkerSettings: [.linkedLibrary("uv")]))
    dependencies.append("CLibuvPeer")
    present.append(.define("HAS_LIBUV"))
}
if has("ev.h") {
    peers.append(.target(name: "CLibevPeer", dependencies: ["CPerfPeers"], linkerSettings: [.linkedLibrary("ev")]))
    dependencies.append("CLibevPeer")
    present.append(.define("HAS_LIBEV"))
}
if has("glib-2.0/glib.h") {
    peers.append(.systemLibrary(name: "CGLib", pkgConfig: "glib-2.0", providers: [.apt(["libglib2.0-dev"])]))
    peers.append(.target(name: "CGLibPeer", dependencies: ["CPerfPeers", "CGLib"]))
    dependencies.append("CGLibPeer")
    present.append(.define("HAS_GLIB"))
}

let package = Package(
    name: "Benchmarks",
    dependencies: [
        .package(name: "EventLoop", path: "..", traits: ["NIO"]),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.2"),
    ],
    targets: [
        // Not the name of the library's own target: names of targets are unique in a package graph.
        .systemLibrary(name: "CLibeventPeer", pkgConfig: "libevent_core", providers: [.apt(["libevent-dev"])]),
        .target(name: "CPerfPeers", dependencies: ["CLibeventPeer"], linkerSettings: [.linkedLibrary("event_pthreads")]),
        .executableTarget(
            name: "eventloop-peers",
            dependencies: [
                .product(name: "EventLoop", package: "EventLoop"),
                .product(name: "EventLoopDatagrams", package: "EventLoop"),
                .product(name: "EventLoopMessagePorts", package: "EventLoop"),
                .product(name: "EventLoopNIO", package: "EventLoop"),
                .product(name: "EventLoopObserving", package: "EventLoop"),
                .product(name: "EventLoopStreams", package: "EventLoop"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                "CPerfPeers",
            ] + dependencies,
            swiftSettings: strict + present),
    ] + peers,
    swiftLanguageModes: [.v6]
)
