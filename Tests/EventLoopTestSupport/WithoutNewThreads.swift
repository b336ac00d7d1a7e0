// A process that can start no thread.

#if canImport(Glibc)
import Glibc

// Glibc's overlay does not declare these two.
@_silgen_name("pthread_getattr_default_np") private func systemGetDefault(_ attributes: UnsafeMutablePointer<pthread_attr_t>) -> Int32
@_silgen_name("pthread_setattr_default_np") private func systemSetDefault(_ attributes: UnsafePointer<pthread_attr_t>) -> Int32

/// Calls `body` while no thread can be started, unless it brings its own size of the stack: no memory is large enough for the default. For a test
/// in a separate process.
@discardableResult
public func withoutNewThreads<Value>(_ body: () throws -> Value) rethrows -> Value {
    let attributes = UnsafeMutablePointer<pthread_attr_t>.allocate(capacity: 2)
    let (usual, huge) = (attributes, attributes + 1)
    precondition(systemGetDefault(usual) == 0 && systemGetDefault(huge) == 0, "the default attributes")
    precondition(pthread_attr_setstacksize(huge, 1 << 60) == 0 && systemSetDefault(huge) == 0, "a stack that is too large")
    defer {
        precondition(systemSetDefault(usual) == 0, "the default attributes")
        pthread_attr_destroy(usual)
        pthread_attr_destroy(huge)
        attributes.deallocate()
    }
    return try body()
}
#endif
