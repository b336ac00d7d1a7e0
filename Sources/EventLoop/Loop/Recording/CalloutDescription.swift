// What is called, for a report.

import Synchronization

package struct CalloutDescription {
    package var kind: RunLoop.Recording.Kind
    package var label: String?
    package var site: CreationSite?

    package init(kind: RunLoop.Recording.Kind, label: String?, site: CreationSite?) {
        (self.kind, self.label, self.site) = (kind, label, site)
    }

    /// What a loop calls that does not publish its callouts yet: the item that says of itself that it is being called. A block, a perform, a
    /// job and a callback of a C library do not say so; then it is a pass.
    package init(unpublishedOf loop: RunLoop) {
        self = loop.shared.withLock { shared in
            var found: CalloutDescription?
            shared.sources.forEach { membership in
                let source = membership.source
                if source.core.pointee.servingLoop.load(ordering: .relaxed) != loop.id { return }
                found = CalloutDescription(kind: source.recordedKind, label: source.label, site: source.site)
            }
            shared.timers.forEach { timer in
                if timer.isFiring { found = CalloutDescription(kind: timer.recordedKind, label: timer.label, site: timer.site) }
            }
            let observers = shared.modes.all.lazy.flatMap { $0.locked.observers }
            if let observer = observers.first(where: { $0.isFiring }), found == nil {
                found = CalloutDescription(kind: .observer, label: observer.label, site: observer.site)
            }
            return found ?? CalloutDescription(kind: .pass, label: nil, site: nil)
        }
    }
}
