// The entry point: the cases of eventloop-perf, with further peers.

import Glibc

@main
struct Peers {
    static func main() {
        exit(Program.run(catalog: FurtherPeers.catalog, growths: FurtherPeers.growths, missing: FurtherPeers.missing))
    }
}
