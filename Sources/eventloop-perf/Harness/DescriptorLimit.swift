// The process's limit of descriptors: raised as far as it goes, because some cases open tens of thousands.

import Glibc

enum DescriptorLimit {
    /// For loops, eventfds and the like, beside what a case itself opens.
    private static let reserve = 80

    /// The descriptors that a case may open. Some are open: standard streams, and what peers keep after their cases.
    static var available: Int { max(0, Int(clamping: current.rlim_cur) - open - reserve) }

    /// Raises the limit to the most that this process is allowed.
    static func raise() {
        var limit = current
        limit.rlim_cur = limit.rlim_max
        // If it is refused, cases are left out, and the program says so.
        _ = setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }

    /// Why a case cannot be run here; nil if it can.
    static func objection(to measured: Case) -> String? {
        guard measured.descriptors > available else { return nil }
        return "\(measured.id) opens \(Format.grouped(Int64(measured.descriptors))) descriptors, and the limit allows "
            + "\(Format.grouped(Int64(available))) (ulimit -Hn)"
    }

    private static var open: Int {
        guard let folder = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(folder) }
        var entries = 0
        while readdir(folder) != nil { entries += 1 }  // ends: with the folder
        return entries - 3  // two names of folders, and the descriptor of this one
    }

    private static var current: rlimit {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        return limit
    }
}
