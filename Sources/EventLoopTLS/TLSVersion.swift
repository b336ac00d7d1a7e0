// The versions of the protocol.

#if TLS

internal import COpenSSL

/// A version of TLS. Older ones are broken, and not offered.
public enum TLSVersion: Sendable, Comparable {
    /// TLS 1.2, RFC 5246.
    case tls12
    /// TLS 1.3, RFC 8446.
    case tls13

    /// OpenSSL's number for it.
    var number: Int32 {
        switch self {
        case .tls12: TLS1_2_VERSION
        case .tls13: TLS1_3_VERSION
        }
    }
}

#endif
