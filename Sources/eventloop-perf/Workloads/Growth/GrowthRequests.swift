// Many requests that wait for their replies on one connection to a named port, each with a timeout.

import CPerfPeers

enum GrowthRequests {
    static func make(_ size: Int) -> GrowthRig {
        let requests = PendingRequests(timeout: .seconds(3_600))
        requests.send(size)
        let batch = perf_growth_batch(size)
        return GrowthRig { cost, ops in
            var taken: Int64 = 0
            for _ in stride(from: 0, to: ops, by: batch) {
                switch cost {
                case 0:
                    taken += timed { requests.answer(batch) }
                    requests.send(batch)
                case 1:
                    taken += timed { requests.send(batch) }
                    requests.cancel(batch)
                default:
                    requests.send(batch)
                    taken += timed { requests.cancel(batch) }
                }
            }
            return taken
        } end: {
            requests.end()
        }
    }
}
