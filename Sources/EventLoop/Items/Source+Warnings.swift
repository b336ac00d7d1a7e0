// Likely mistakes with sources, apart from any loop.

extension RunLoop.Source {
    /// The last release ends the source, which is valid and was never in a mode.
    @inline(never)
    final func warnOfRelease() { /* DOES CALLOUT */
        Warnings.report(
            .unusedItem, label: label, site: site,
            "a source (\(typeDescription)) was released before it was added to a run loop, so its handler was never called; "
                + "add it to the loop")
    }

    /// The kernel found the descriptor closed.
    @inline(never)
    final func warnOfClosing(_ descriptor: Int32) { /* DOES CALLOUT */
        Warnings.report(
            .closedDescriptor, label: label, site: site,
            "descriptor \(descriptor) was closed before its source was invalidated; "
                + "invalidate the source, and close the descriptor in onInvalidation")
    }
}
