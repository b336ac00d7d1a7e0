// The descriptors that a service manager opened for this process: sd_listen_fds(3).

internal import CPlatform
public import EventLoop
internal import EventLoopLibC

extension RunLoop {
    /// A descriptor that the service manager opened for this process, by default a listening socket (socket activation).
    public struct InheritedSocket: Sendable, Hashable {
        /// What the descriptor is, as the kernel says.
        public enum Kind: Sendable, Hashable, CaseIterable {
            /// A stream socket that listens: pass it to `SocketSource.init(adoptingListener:)`.
            case listener
            /// A stream socket that does not listen, for example the connection of a unit with `Accept=yes`.
            case stream
            /// Of datagrams (SOCK_DGRAM).
            case datagram
            /// Of packets (SOCK_SEQPACKET), listening or not.
            case sequentialPacket
            /// A FIFO or another file, or a socket of another type.
            case other
        }

        /// Open and close-on-exec. Whether it is non-blocking is the service manager's choice (`NonBlocking=`).
        public let descriptor: Int32
        /// `FileDescriptorName=`, which is the name of the socket unit by default; "unknown" if the service manager gave no names.
        public let name: String
        /// What the descriptor is.
        public let kind: Kind
        /// The socket's own address; nil if it has none, or one of another family.
        public let address: SocketAddress?
    }
}

extension RunLoop.Supervisor {
    /// The inherited sockets of this name. A socket unit with several addresses passes several sockets under one name.
    public func sockets(named name: String) -> [RunLoop.InheritedSocket] { sockets.filter { $0.name == name } }
}

extension RunLoop.InheritedSocket {
    /// Looks at the descriptors from `first` on, and makes them close-on-exec.
    static func all(named names: [String], from first: Int32) throws(RunLoop.SupervisorError) -> [Self] {
        var found: [Self] = []
        for (name, descriptor) in zip(names, first...) {
            let code = cplatform_set_close_on_exec(descriptor)
            if code != 0 { throw .system(operation: "inherited descriptor \(descriptor) (\(quoted(name)))", errno: code) }
            guard let kind = Kind(of: descriptor) else {
                let code = errno
                throw .system(operation: "type of inherited descriptor \(descriptor) (\(quoted(name)))", errno: code)
            }
            found.append(Self(descriptor: descriptor, name: name, kind: kind, address: address(of: descriptor)))
        }
        return found
    }

    private static func address(of descriptor: Int32) -> RunLoop.SocketAddress? {
        let address = RunLoop.SocketAddress(localOf: descriptor)
        // The socket has no name.
        return address == .unix(path: "") ? nil : address
    }
}

extension RunLoop.InheritedSocket.Kind {
    /// Nil with errno set if the descriptor is not open.
    fileprivate init?(of descriptor: Int32) {
        switch Int(cplatform_descriptor_kind(descriptor)) {
        case CPLATFORM_LISTENER: self = .listener
        case CPLATFORM_STREAM: self = .stream
        case CPLATFORM_DATAGRAM: self = .datagram
        case CPLATFORM_SEQUENCED: self = .sequentialPacket
        case CPLATFORM_OTHER_FILE: self = .other
        default: return nil
        }
    }
}
