// Package.swift leaves out what needs a library that is not installed. Without these tests, that would look like success.

import CLibevent
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

#if HAS_CCurl
import CCurl
#endif
#if HAS_CGLib
import CGLib
#endif
#if HAS_CGetdns
import CGetdns
#endif
#if HAS_CHiredis
import CHiredis
#endif
#if HAS_CLibuv
import CLibuv
#endif
#if HAS_COpenSSL
import COpenSSL
#endif
#if HAS_CUnbound
import CUnbound
#endif

@Suite struct InventoryTests {
    @Test(arguments: ["CCurl", "CGLib", "CGetdns", "CHiredis", "CLibuv", "COpenSSL", "CUnbound"])
    func `the library is installed, and the program is linked with it`(module: String) {
        #expect(
            versions[module] != nil, "the library of \(module) is missing, and what needs it is not built; see Scripts/install-libraries")
        #expect(versions[module]?.isEmpty != true)
    }

    @Test(arguments: programs)
    func `the program is installed`(name: String) {
        let folders = getenv("PATH").map { String(cString: $0) }?.split(separator: ":") ?? []
        let isPresent = folders.contains { access("\($0)/\(name)", X_OK) == 0 }
        #expect(isPresent, "\(name) is missing; see Scripts/install-libraries")
    }

    @Test func `the process uses the libevent that the headers belong to`() {
        #expect(String(cString: event_get_version()) == LIBEVENT_VERSION)
    }
}

#if os(Linux)
private let programs = ["wrk", "redis-server", "openssl", "curl", "systemd-socket-activate"]
#else
private let programs = ["wrk", "redis-server", "openssl", "curl"]
#endif

/// The version of each library, by the name of its module.
private let versions: [String: String] = {
    var versions: [String: String] = [:]
    #if HAS_CCurl
    versions["CCurl"] = String(cString: curl_version())
    #endif
    #if HAS_CGLib
    versions["CGLib"] = "\(glib_major_version).\(glib_minor_version)"
    #endif
    #if HAS_CGetdns
    versions["CGetdns"] = String(cString: getdns_get_version())
    #endif
    #if HAS_CHiredis
    versions["CHiredis"] = "\(HIREDIS_MAJOR).\(HIREDIS_MINOR)"
    freeReplyObject(nil)
    #endif
    #if HAS_CLibuv
    versions["CLibuv"] = String(cString: uv_version_string())
    #endif
    #if HAS_COpenSSL
    versions["COpenSSL"] = String(cString: OpenSSL_version(OPENSSL_VERSION_STRING))
    #endif
    #if HAS_CUnbound
    versions["CUnbound"] = String(cString: ub_version())
    #endif
    return versions
}()
