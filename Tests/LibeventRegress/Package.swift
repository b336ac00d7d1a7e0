// swift-tools-version: 6.1
// libevent's own regression tests on run loops. Scripts/test-libevent-regress compiles libevent's tests and links them with this package.
import PackageDescription

let package = Package(
    name: "LibeventRegress",
    platforms: [.macOS(.v15)],
    dependencies: [.package(name: "EventLoop", path: "../..")],
    targets: [
        .target(name: "CLibeventRegress", dependencies: [.product(name: "CLibevent", package: "EventLoop")]),
        .executableTarget(
            name: "libevent-regress",
            dependencies: [
                "CLibeventRegress", .product(name: "EventLoop", package: "EventLoop"), .product(name: "CLibevent", package: "EventLoop"),
            ]),
    ],
    swiftLanguageModes: [.v6]
)
