// swift-tools-version: 6.1
// OpenCombine with its scheduler and its timer publisher on this package's run loop. Scripts/test-third-party copies this folder beside
// OpenCombine's sources and edits the two files that use Foundation's run loop.
import PackageDescription

let package = Package(
    name: "open-combine-on-event-loop", platforms: [.macOS(.v15)],
    dependencies: [.package(name: "EventLoop", path: "../..")],
    targets: [
        .target(name: "COpenCombineHelpers"),
        .target(
            name: "OpenCombine", dependencies: ["COpenCombineHelpers"],
            exclude: [
                "RootProtocols.swift.gyb", "Concurrency/Publisher+Concurrency.swift.gyb", "Publishers/Publishers.Encode.swift.gyb",
                "Publishers/Publishers.MapKeyPath.swift.gyb", "Publishers/Publishers.Catch.swift.gyb",
            ]),
        .target(
            name: "OpenCombineEventLoop",
            dependencies: [
                "OpenCombine", "COpenCombineHelpers", .product(name: "EventLoop", package: "EventLoop"),
                .product(name: "EventLoopFoundation", package: "EventLoop"),
            ]),
        .testTarget(name: "OpenCombineTests", dependencies: ["OpenCombineEventLoop"], path: "OpenCombineTests"),
    ],
    swiftLanguageModes: [.v5]
)
