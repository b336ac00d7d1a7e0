// CFSocket.h: the name registry, which needs a server that neither Linux nor Apple's systems have.

/// Registers a value under a name.
@available(*, unavailable, message: "there is no name server; publish a name with RunLoop.LocalMessagePort, or listen at a Unix path")
public func CFSocketRegisterValue(
    _ nameServerSignature: UnsafePointer<CFSocketSignature>!, _ timeout: CFTimeInterval, _ name: String!, _ value: AnyObject!
) -> CFSocketError { fatalError("unavailable") }

/// Looks up a value.
@available(*, unavailable, message: "there is no name server; find a name with RunLoop.RemoteMessagePort, or connect to a Unix path")
public func CFSocketCopyRegisteredValue(
    _ nameServerSignature: UnsafePointer<CFSocketSignature>!, _ timeout: CFTimeInterval, _ name: String!,
    _ value: UnsafeMutablePointer<Unmanaged<AnyObject>?>!, _ nameServerAddress: UnsafeMutablePointer<Unmanaged<CFData>?>!
) -> CFSocketError { fatalError("unavailable") }

/// Registers a socket under a name.
@available(*, unavailable, message: "there is no name server; publish a name with RunLoop.LocalMessagePort, or listen at a Unix path")
public func CFSocketRegisterSocketSignature(
    _ nameServerSignature: UnsafePointer<CFSocketSignature>!, _ timeout: CFTimeInterval, _ name: String!,
    _ signature: UnsafePointer<CFSocketSignature>!
) -> CFSocketError { fatalError("unavailable") }

/// Looks up a socket.
@available(*, unavailable, message: "there is no name server; find a name with RunLoop.RemoteMessagePort, or connect to a Unix path")
public func CFSocketCopyRegisteredSocketSignature(
    _ nameServerSignature: UnsafePointer<CFSocketSignature>!, _ timeout: CFTimeInterval, _ name: String!,
    _ signature: UnsafeMutablePointer<CFSocketSignature>!, _ nameServerAddress: UnsafeMutablePointer<Unmanaged<CFData>?>!
) -> CFSocketError { fatalError("unavailable") }

/// Removes a name.
@available(*, unavailable, message: "there is no name server; invalidate the RunLoop.LocalMessagePort that has the name")
public func CFSocketUnregister(
    _ nameServerSignature: UnsafePointer<CFSocketSignature>!, _ timeout: CFTimeInterval, _ name: String!
) -> CFSocketError { fatalError("unavailable") }

/// Sets the port of the name server.
@available(*, unavailable, message: "there is no name server; remove the call")
public func CFSocketSetDefaultNameRegistryPortNumber(_ port: UInt16) { fatalError("unavailable") }

/// The port of the name server.
@available(*, unavailable, message: "there is no name server; remove the call")
public func CFSocketGetDefaultNameRegistryPortNumber() -> UInt16 { fatalError("unavailable") }

// The keys of the messages to the name server.

/// The key of a command.
@available(*, unavailable, message: "there is no name server; remove the key")
public let kCFSocketCommandKey: String! = "Command"
/// The key of a name.
@available(*, unavailable, message: "there is no name server; remove the key")
public let kCFSocketNameKey: String! = "Name"
/// The key of a value.
@available(*, unavailable, message: "there is no name server; remove the key")
public let kCFSocketValueKey: String! = "Value"
/// The key of a result.
@available(*, unavailable, message: "there is no name server; remove the key")
public let kCFSocketResultKey: String! = "Result"
/// The key of an error.
@available(*, unavailable, message: "there is no name server; remove the key")
public let kCFSocketErrorKey: String! = "Error"
/// The command that registers.
@available(*, unavailable, message: "there is no name server; remove the key")
public let kCFSocketRegisterCommand: String! = "Register"
/// The command that looks up.
@available(*, unavailable, message: "there is no name server; remove the key")
public let kCFSocketRetrieveCommand: String! = "Retrieve"
