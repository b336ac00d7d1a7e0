// A program that tests the library while the C library's calls fail, and while the process has few descriptors. Each case is a process of
// its own, forked from this one, which never uses the library itself.
//
//   eventloop-fault-probe limits            every scenario with every limit of 4 to 64 descriptors
//   eventloop-fault-probe full              a process whose descriptors are all taken, and the same process after they are free again
//   eventloop-fault-probe faults [--sample [--turn N]] [--scenario NAME] [--function NAME] [--verbose]
//                                           the nth call of each function fails with each of its errors, until no call is left to fail;
//                                           the sample has few calls, each with the first error and one other, which --turn chooses
//   eventloop-fault-probe scenarios [--scenario NAME]
//                                           prints the scenarios, for a process each

import CFaults

#if canImport(Glibc)
import Glibc
#endif

@main
struct Main {
    static func main() {
        withoutBacktraces()
        withoutInheritance()
        var arguments = Array(CommandLine.arguments.dropFirst())
        let what = arguments.isEmpty ? "" : arguments.removeFirst()
        let options = Options(arguments)
        if !faults_are_available() {
            // A sanitizer's runtime needs descriptors of its own, and its definitions must not be hidden.
            say("nothing is tried under a sanitizer")
            exit(0)
        }
        switch what {
        case "limits": exit(tryLimits(options) ? 0 : 1)
        case "full": exit(tryFull(options) ? 0 : 1)
        case "faults": exit(tryFaults(options) ? 0 : 1)
        case "scenarios":
            for scenario in options.scenarios { say(scenario.name) }
            exit(0)
        default:
            print(
                "usage: eventloop-fault-probe limits|full|faults|scenarios [--sample [--turn N]] [--scenario NAME] [--function NAME] [--verbose]"
            )
            exit(2)
        }
    }

    /// The parent process may have left descriptors open, and may have blocked signals.
    private static func withoutInheritance() {
        for descriptor in 3..<Int32(1024) { close(descriptor) }
        var none = sigset_t()
        sigemptyset(&none)
        sigprocmask(SIG_SETMASK, &none, nil)
        signal(SIGPIPE, SIG_IGN)
    }

    /// The runtime reads its settings when the program starts. With a backtrace for each, a thousand deliberate stops would take minutes.
    private static func withoutBacktraces() {
        if getenv("SWIFT_BACKTRACE") != nil { return }
        setenv("SWIFT_BACKTRACE", "enable=no", 1)
        var path = [CChar](repeating: 0, count: 4096)
        guard readlink("/proc/self/exe", &path, path.count - 1) > 0 else { return }
        execv(&path, CommandLine.unsafeArgv)
    }
}

struct Options {
    var isSample = false
    /// The start of the sample's rotation of errors.
    var turn = 0
    var isVerbose = false
    var scenario: String?
    var function: String?

    init(_ arguments: [String]) {
        var left = arguments[...]
        while let option = left.popFirst() {
            switch option {
            case "--sample": isSample = true
            case "--turn": turn = max(0, left.popFirst().flatMap { Int($0) } ?? 0)
            case "--verbose": isVerbose = true
            case "--scenario": scenario = left.popFirst()
            case "--function": function = left.popFirst()
            default:
                print("no such option: \(option)")
                exit(2)
            }
        }
    }

    var scenarios: [Scenario] { Scenario.all.filter { scenario == nil || $0.name == scenario } }
}
