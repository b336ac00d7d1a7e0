// The entry point. Peers that need a separate package are in Benchmarks/, which also contains all of this.

import Glibc

@main
struct Perf {
    static func main() {
        exit(Program.run(catalog: Catalog.all, growths: GrowthCatalog.all))
    }
}
