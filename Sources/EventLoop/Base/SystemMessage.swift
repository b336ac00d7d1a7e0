// Parts of the messages of errors.

internal import CPlatform

/// The system's message and the symbol: "Permission denied (EACCES)". Thread-safe.
package func systemMessage(_ errno: Int32) -> String {
    let message = withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { buffer in
        // SAFETY: the buffer lives as long as this call, which fills it up to a zero byte.
        cplatform_error_message(errno, buffer.baseAddress!, 256)
        return String(cString: buffer.baseAddress!)
    }
    guard let symbol = cplatform_error_name(errno) else { return "\(message) (errno \(errno))" }
    return "\(message) (\(String(cString: symbol)))"
}

/// A user's text in a message, in quotation marks and on one line.
package func quoted(_ text: String) -> String { String(reflecting: text) }
