internal import CPlatform

/// The process in which an object was made (decision 24). In a child of fork, objects of the parent have another mark than the child's own, and the
/// child leaves them alone: it shares their descriptors with the parent, and has none of the threads that use them.
package struct ProcessMark: Sendable {
    /// How many forks lie between the program's start and the process.
    let number: Int32
    /// The mark of this process.
    @inline(__always) package init() { number = cplatform_fork_count() }
    /// Whether this process made the object. One load and one comparison.
    @inline(__always) package var isOurs: Bool { number == cplatform_fork_count() }
    /// Whether every object of the process is its own, because neither it nor an ancestor was forked from a process with this library.
    package static var isFirst: Bool { cplatform_fork_count() == 0 }
}
