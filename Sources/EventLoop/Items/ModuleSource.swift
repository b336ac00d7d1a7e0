extension RunLoop {
    /// The base class of sources in other modules of this package: a program cannot call its initializer. It passes each call to a `SourceBehavior`,
    /// because Swift has no methods that only the modules of one package can override.
    open class _ModuleSource: Source, @unchecked Sendable {
        // SAFETY: a constant.
        private let behavior: any SourceBehavior

        package init(_ behavior: any SourceBehavior, recordedKind: Recording.Kind, label: String?, site: CreationSite) {
            self.behavior = behavior
            super.init(kind: .watched, recordedKind: recordedKind, label: label, site: site)
        }

        override final var watch: Watch? { Watch(identity: behavior.identity, descriptor: behavior.descriptor) }
        override final func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */ behavior.serve(self, ready) }
        override final func endAbandonedCalls() { /* DOES CALLOUT */ behavior.endAbandonedCalls() }
        override final func didInvalidate() { /* DOES CALLOUT */ behavior.didInvalidate() }
        override final func releaseHandlers() { behavior.releaseHandlers() }
        override final var typeDescription: String { behavior.typeDescription }
    }
}

/// What a source of another module of this package does. Each requirement has the contract of the `Source` member of the same name. The source
/// retains its behavior; the behavior must not retain the source.
package protocol SourceBehavior: AnyObject, Sendable {
    /// What the kernel watches for reading.
    var descriptor: Int32 { get }
    var identity: FileIdentity { get }
    func serve(_ source: RunLoop.Source, _ ready: Readiness) -> Bool
    func endAbandonedCalls()
    func didInvalidate()
    func releaseHandlers()
    var typeDescription: String { get }
}
