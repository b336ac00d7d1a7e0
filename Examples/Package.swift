// swift-tools-version: 6.1
// Examples and tests with C libraries that the run loop does not depend on. This is a separate package, so that users of the library, and
// its own test suite, need libevent only. `Scripts/install-libraries` installs the C libraries.
import Foundation
import PackageDescription

let strict: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

/// A C library and its module, which is in Sources/`module`.
struct Library {
    let module: String
    /// SwiftPM cannot check whether a system library is installed, so we look for this header.
    let header: String
    let pkgConfig: String?
    let apt: String
    let brew: String

    var isInstalled: Bool {
        let folders = ["", "/x86_64-linux-gnu", "/aarch64-linux-gnu"].map { "/usr/include" + $0 }
        return (folders + ["/usr/local/include", "/opt/homebrew/include", "/opt/homebrew/opt/\(brew)/include"])
            .contains { FileManager.default.fileExists(atPath: "\($0)/\(header)") }
    }

    var target: Target { .systemLibrary(name: module, pkgConfig: pkgConfig, providers: [.apt([apt]), .brew([brew])]) }
}

let installed = [
    Library(module: "CGLib", header: "glib-2.0/glib.h", pkgConfig: "glib-2.0", apt: "libglib2.0-dev", brew: "glib"),
    Library(module: "CLibuv", header: "uv.h", pkgConfig: "libuv", apt: "libuv1-dev", brew: "libuv"),
    // Its pkg-config file has nothing that is needed, and a flag that SwiftPM warns about.
    Library(module: "CHiredis", header: "hiredis/async.h", pkgConfig: nil, apt: "libhiredis-dev", brew: "hiredis"),
    Library(module: "CCurl", header: "curl/curl.h", pkgConfig: "libcurl", apt: "libcurl4-openssl-dev", brew: "curl"),
    Library(module: "CUnbound", header: "unbound-event.h", pkgConfig: "libunbound", apt: "libunbound-dev", brew: "unbound"),
    Library(module: "CGetdns", header: "getdns/getdns_ext_libevent.h", pkgConfig: "getdns", apt: "libgetdns-dev", brew: "getdns"),
].filter(\.isInstalled)

/// OpenSSL's modules are the library's own, behind the traits "OpenSSL" and "TLS".
let hasOpenSSL = Library(module: "", header: "openssl/ssl.h", pkgConfig: "openssl", apt: "libssl-dev", brew: "openssl").isInstalled

// libevent's module comes from the package of the library.
let common: [Target.Dependency] = [.product(name: "EventLoop", package: "EventLoop"), .product(name: "CLibevent", package: "EventLoop")]

// The library's own modules for other packages, behind traits of the same names.
let ecosystem = ["Logging", "Metrics", "ServiceLifecycle"]

/// The target, or nothing if one of its C libraries is not installed. InventoryTests report missing libraries.
func target(_ modules: [String], _ make: ([Target.Dependency]) -> Target) -> [Target] {
    let isComplete = modules.allSatisfy { module in installed.contains { $0.module == module } }
    return isComplete ? [make(common + modules.map { .init(stringLiteral: $0) })] : []
}

/// A program, in Sources/`name`.
func example(_ name: String, _ modules: String...) -> [Target] {
    target(modules) { .executableTarget(name: name, dependencies: $0, swiftSettings: strict) }
}

/// Tests, in Tests/`name`.
func tests(_ name: String, _ modules: String..., linking libraries: [String] = []) -> [Target] {
    target(modules) {
        .testTarget(
            name: name, dependencies: $0 + ["TestSupport"], swiftSettings: strict, linkerSettings: libraries.map { .linkedLibrary($0) })
    }
}

// getdns's extension for libevent. Debian 12's shared library of it exports no function, but its static one has them.
#if os(Linux)
let getdnsExtension = ":libgetdns_ex_event.a"
#else
let getdnsExtension = "getdns_ex_event"
#endif

func product(_ name: String, _ package: String) -> Target.Dependency { .product(name: name, package: package) }

/// The service and its tests need no C libraries.
let services: [Target] = [
    .executableTarget(
        name: "echo-service",
        dependencies: common + ecosystem.map { product("EventLoop\($0)", "EventLoop") } + [
            product("EventLoopSupervisor", "EventLoop"), product("Logging", "swift-log"),
            product("ServiceLifecycle", "swift-service-lifecycle"),
            product("UnixSignals", "swift-service-lifecycle"),
        ], swiftSettings: strict),
    .testTarget(
        name: "LoggingTests",
        dependencies: common + [
            "TestSupport", product("EventLoopLogging", "EventLoop"), product("EventLoopObserving", "EventLoop"),
            product("Logging", "swift-log"),
            product("InMemoryLogging", "swift-log"),
        ], swiftSettings: strict),
    .testTarget(
        name: "MetricsTests",
        dependencies: common + [
            "TestSupport", product("EventLoopMetrics", "EventLoop"), product("CoreMetrics", "swift-metrics"),
            product("MetricsTestKit", "swift-metrics"),
        ], swiftSettings: strict),
    .testTarget(
        name: "ServiceLifecycleTests",
        dependencies: common + [
            "TestSupport", product("EventLoopServiceLifecycle", "EventLoop"), product("EventLoopStreams", "EventLoop"),
            product("EventLoopSupervisor", "EventLoop"),
            product("Logging", "swift-log"), product("ServiceLifecycle", "swift-service-lifecycle"),
            product("ServiceLifecycleTestKit", "swift-service-lifecycle"),
            product("UnixSignals", "swift-service-lifecycle"),
        ], swiftSettings: strict),
    .testTarget(name: "SystemdTests", dependencies: common + ["TestSupport", "echo-service"], swiftSettings: strict),
]

/// The HTTP server, its example and its tests.
let httpProducts = [
    product("EventLoopHTTP", "EventLoop"), product("EventLoopStreams", "EventLoop"), product("HTTPTypes", "swift-http-types"),
]
let http: [Target] = [
    .executableTarget(name: "http-server", dependencies: common + httpProducts, swiftSettings: strict),
    .executableTarget(
        name: "http-service",
        dependencies: common + httpProducts + ecosystem.map { product("EventLoop\($0)", "EventLoop") } + [
            product("CoreMetrics", "swift-metrics"), product("Logging", "swift-log"), product("Metrics", "swift-metrics"),
            product("ServiceLifecycle", "swift-service-lifecycle"), product("UnixSignals", "swift-service-lifecycle"),
        ], swiftSettings: strict),
    .testTarget(
        name: "HTTPTests",
        dependencies: common + httpProducts + [
            "TestSupport", "http-server", "http-service", product("EventLoopServiceLifecycle", "EventLoop"),
            product("ServiceLifecycleTestKit", "swift-service-lifecycle"),
        ]
            + (hasOpenSSL ? [product("EventLoopTLS", "EventLoop")] : []),
        swiftSettings: strict + (hasOpenSSL ? [.define("HAS_COpenSSL")] : [])),
]

/// The programs of Examples/README.md that need no other library, and their tests.
let streamPrograms = ["actor-per-loop", "chat-server", "key-value-server", "line-client", "tcp-proxy"]
let loopPrograms = ["cron", "job-runner", "modal-program"]
let datagramPrograms = ["dns-forwarder", "statsd-sink"].map {
    Target.executableTarget(name: $0, dependencies: common + [product("EventLoopDatagrams", "EventLoop")], swiftSettings: strict)
}
let handover: [Target] = [
    .executableTarget(
        name: "handover-server",
        dependencies: common + [
            product("EventLoopMessagePorts", "EventLoop"), product("EventLoopStreams", "EventLoop"),
            product("EventLoopSupervisor", "EventLoop"),
        ], swiftSettings: strict)
]
let programs: [Target] =
    streamPrograms.map {
        .executableTarget(name: $0, dependencies: common + [product("EventLoopStreams", "EventLoop")], swiftSettings: strict)
    } + loopPrograms.map { .executableTarget(name: $0, dependencies: common, swiftSettings: strict) } + [
        .testTarget(
            name: "ProgramTests",
            dependencies: common + [
                "TestSupport", "dns-forwarder", "handover-server", "statsd-sink", product("EventLoopDatagrams", "EventLoop"),
                product("EventLoopStreams", "EventLoop"),
            ]
                + (streamPrograms + loopPrograms).map { .init(stringLiteral: $0) },
            swiftSettings: strict)
    ]

/// Byte streams over TLS.
let tls: [Target] = [
    .executableTarget(
        name: "tls-service",
        dependencies: common + [
            product("EventLoopLogging", "EventLoop"), product("EventLoopMetrics", "EventLoop"), product("EventLoopObserving", "EventLoop"),
            product("EventLoopServiceLifecycle", "EventLoop"), product("EventLoopStreams", "EventLoop"),
            product("EventLoopSupervisor", "EventLoop"), product("EventLoopTLS", "EventLoop"), product("Logging", "swift-log"),
            product("ServiceLifecycle", "swift-service-lifecycle"), product("UnixSignals", "swift-service-lifecycle"),
        ], swiftSettings: strict),
    .executableTarget(
        name: "https-get", dependencies: common + ["EventLoopStreams", "EventLoopTLS"].map { product($0, "EventLoop") },
        swiftSettings: strict),
    .testTarget(
        name: "TLSTests",
        dependencies: common + ["TestSupport", "https-get", "tls-service"]
            + ["EventLoopStreams", "EventLoopTLS"].map { product($0, "EventLoop") },
        swiftSettings: strict),
]

let targets: [[Target]] = [
    services,
    datagramPrograms,
    handover,
    programs,
    http,
    hasOpenSSL ? tls : [],
    installed.map(\.target),
    [
        // `Shared` is a link to the tools of the main package's tests. Not the name of that target: names are unique in a package graph.
        .target(name: "TestSupport", dependencies: common, path: "Tests/Support", swiftSettings: strict),
        .testTarget(
            name: "InventoryTests",
            dependencies: common + installed.map { .init(stringLiteral: $0.module) } + (hasOpenSSL ? ["https-get"] : []),
            swiftSettings: strict + installed.map { .define("HAS_\($0.module)") } + (hasOpenSSL ? [.define("HAS_COpenSSL")] : [])),
    ],
    // The programs of docs/c-libraries.md.
    example("evhttp-server"),
    example("hiredis-client", "CHiredis"),
    example("curl-downloads", "CCurl"),
    // The classes and programs of docs/embedding.md.
    target(["CGLib", "CLibuv"]) { .target(name: "Embedding", dependencies: $0, swiftSettings: strict) },
    target(["CGLib", "CLibuv"]) {
        .executableTarget(name: "glib-hosts-run-loop", dependencies: $0 + ["Embedding"], swiftSettings: strict)
    },
    target(["CGLib", "CLibuv"]) {
        .executableTarget(name: "run-loop-drives-guests", dependencies: $0 + ["Embedding"], swiftSettings: strict)
    },
    target(["CGLib", "CLibuv"]) {
        .testTarget(name: "EmbeddingTests", dependencies: $0 + ["Embedding", "TestSupport"], swiftSettings: strict)
    },
    tests("LibeventModuleTests"),
    hasOpenSSL ? tests("OpenSSLTests") : [],
    tests("BuffereventTests"),
    tests("CurlTests", "CCurl"),
    tests("EvdnsTests"),
    tests("EvhttpTests"),
    tests("GetdnsTests", "CGetdns", linking: [getdnsExtension]),
    tests("HiredisTests", "CHiredis"),
    tests("UnboundTests", "CUnbound"),
]

let package = Package(
    name: "Examples",
    platforms: [.macOS(.v15)],
    dependencies: [
        .package(
            name: "EventLoop", path: "..",
            traits: Set((ecosystem + ["HTTP"] + (hasOpenSSL ? ["OpenSSL", "TLS"] : [])).map { .trait(name: $0) })),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.4.0"),
    ],
    targets: targets.flatMap { $0 },
    swiftLanguageModes: [.v6]
)
