// Where a simulation is possible.

import EventLoopTestSupport
import Testing

extension Trait where Self == ConditionTrait {
    /// A build with a sanitizer has the hooks of the sanitizer in the places of those of the simulation.
    static var whereSimulated: Self {
        .enabled(if: !isUnderThreadSanitizer && !isUnderAddressSanitizer, "a build with a sanitizer simulates nothing")
    }
}

/// Optimized functions are merged into their callers, and have no names of their own in reports.
let isDebugBuild = {
    var isDebug = false
    // Evaluated in a debug build only.
    assert(
        {
            isDebug = true
            return true
        }())
    return isDebug
}()
