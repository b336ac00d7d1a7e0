// What a program sees that imports this module and has not enabled its trait: an error that says so.
//
// The declarations have the parameters of the real ones; otherwise the compiler would report the arguments.

#if !TLS
public import EventLoopStreams

@available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"TLS\"])")
public enum TLSVersion: Sendable { case tls12, tls13 }

@available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"TLS\"])")
public struct TLSError: Error {}

@available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"TLS\"])")
public struct TLSClient: Sendable {
    public enum Verification: Sendable { case full, chainOnly, none }

    public init(
        serverName: String? = nil, trustedCertificates: String? = nil, applicationProtocols: [String] = [], certificate: String? = nil,
        privateKey: String? = nil, minimumVersion: TLSVersion = .tls12, maximumVersion: TLSVersion = .tls13,
        verification: Verification = .full
    ) {}

    public var resumesSessions: Bool {
        get { true }
        set {}
    }
    public var requiresCloseNotify: Bool {
        get { true }
        set {}
    }
}

@available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"TLS\"])")
public struct TLSServer: Sendable {
    public init(
        certificateChain: String, privateKey: String, applicationProtocols: [String] = [], clientCertificates: String? = nil,
        minimumVersion: TLSVersion = .tls12, maximumVersion: TLSVersion = .tls13
    ) throws {}

    public init(
        certificates: [TLSCertificate], applicationProtocols: [String] = [], clientCertificates: String? = nil,
        minimumVersion: TLSVersion = .tls12, maximumVersion: TLSVersion = .tls13
    ) throws {}
}

@available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"TLS\"])")
public struct TLSCertificate: Sendable {
    public init(chain: String, privateKey: String, passphrase: String? = nil) throws {}
}

@available(*, unavailable, message: "enable the trait: .package(url: …, traits: [\"TLS\"])")
extension ByteStream {
    public func startTLS(_ client: TLSClient, timeout: Duration = .seconds(30)) async throws {}
    public func startTLS(_ server: TLSServer, timeout: Duration = .seconds(30)) async throws {}
    public var applicationProtocol: String? { nil }
    public var tlsVersion: String? { nil }
    public var tlsSessionWasResumed: Bool { false }
    public var tlsServerName: String? { nil }
    public var peerCertificate: [UInt8]? { nil }
    public var peerCertificateSubject: String? { nil }
    public var tlsError: (any Error)? { nil }
}
#endif
