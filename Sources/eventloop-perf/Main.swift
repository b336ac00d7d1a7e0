// The entry point. The peers that need a package of their own are in Benchmarks/, which has all of this as well.

import Glibc

@main
struct Perf {
    static func main() {
        exit(Program.run(catalog: Catalog.all))
    }
}
