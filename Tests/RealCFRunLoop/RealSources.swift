// Sources of the real CFRunLoop whose callbacks are closures, for the tests that compare with it.
//
// Lifecycle of the closures: CF calls plain C functions with an `info` pointer to the object that holds them. `CFRunLoopSourceCreate` retains
// it through the context; the source releases it when it is freed.

public import CoreFoundation

/// A source that is signaled by hand (version 0). `schedule` and `cancel` get the mode.
public func realSource(
    order: Int = 0, schedule: @escaping (CFString) -> Void, cancel: @escaping (CFString) -> Void, perform: @escaping () -> Void
) -> CFRunLoopSource {
    let closures = SourceClosures(schedule: schedule, cancel: cancel, perform: perform)
    var context = CFRunLoopSourceContext()
    context.info = Unmanaged.passUnretained(closures).toOpaque()
    context.retain = { UnsafeRawPointer(Unmanaged<SourceClosures>.fromOpaque($0!).retain().toOpaque()) }
    context.release = { Unmanaged<SourceClosures>.fromOpaque($0!).release() }
    context.schedule = { info, _, mode in SourceClosures.of(info).schedule(mode!) }
    context.cancel = { info, _, mode in SourceClosures.of(info).cancel(mode!) }
    context.perform = { info in SourceClosures.of(info).perform() }
    return withExtendedLifetime(closures) { CFRunLoopSourceCreate(nil, order, &context) }
}

/// A source whose port is a descriptor (version 1): CF waits for it, and reads eight bytes from it before it calls `perform`. The source keeps
/// the owner of the descriptor.
public func realPortSource(descriptor: Int32, owner: AnyObject, perform: @escaping () -> Void) -> CFRunLoopSource {
    let closures = PortClosures(descriptor: descriptor, owner: owner, perform: perform)
    var context = CFRunLoopSourceContext1()
    context.version = 1
    context.info = Unmanaged.passUnretained(closures).toOpaque()
    context.retain = { UnsafeRawPointer(Unmanaged<PortClosures>.fromOpaque($0!).retain().toOpaque()) }
    context.release = { Unmanaged<PortClosures>.fromOpaque($0!).release() }
    context.getPort = { info in PortClosures.of(info).descriptor }
    context.perform = { info in PortClosures.of(info).perform() }
    // CF takes a context of either version through one pointer and reads `version`.
    return withUnsafeMutableBytes(of: &context) { bytes in
        withExtendedLifetime(closures) {
            CFRunLoopSourceCreate(nil, 0, bytes.baseAddress!.assumingMemoryBound(to: CFRunLoopSourceContext.self))
        }
    }
}

/// The common-modes name must be the constant itself, because CF's C functions compare it by pointer (semantics 2.2).
public func realMode(_ name: String) -> CFString {
    switch name {
    case "default": kCFRunLoopDefaultMode
    case "common": kCFRunLoopCommonModes
    default: name.withCString { CFStringCreateWithCString(nil, $0, CFStringBuiltInEncodings.UTF8.rawValue) }
    }
}

private final class SourceClosures {
    let schedule: (CFString) -> Void
    let cancel: (CFString) -> Void
    let perform: () -> Void

    init(schedule: @escaping (CFString) -> Void, cancel: @escaping (CFString) -> Void, perform: @escaping () -> Void) {
        (self.schedule, self.cancel, self.perform) = (schedule, cancel, perform)
    }

    static func of(_ info: UnsafeMutableRawPointer?) -> SourceClosures {
        Unmanaged<SourceClosures>.fromOpaque(info!).takeUnretainedValue()
    }
}

private final class PortClosures {
    let descriptor: Int32
    let owner: AnyObject
    let perform: () -> Void

    init(descriptor: Int32, owner: AnyObject, perform: @escaping () -> Void) {
        (self.descriptor, self.owner, self.perform) = (descriptor, owner, perform)
    }

    static func of(_ info: UnsafeMutableRawPointer?) -> PortClosures { Unmanaged<PortClosures>.fromOpaque(info!).takeUnretainedValue() }
}
