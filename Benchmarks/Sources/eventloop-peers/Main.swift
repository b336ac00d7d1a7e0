// The entry point: the cases of eventloop-perf, each with the further peers that can do it.

import Glibc

@main
struct Peers {
    static func main() {
        exit(Program.run(catalog: FurtherPeers.catalog, missing: FurtherPeers.missing))
    }
}
