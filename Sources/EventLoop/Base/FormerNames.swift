// Former names of types, until every file uses the new ones.

typealias Guarded = ForkAwareMutex
typealias Gate = Latch
typealias Fifo = Deque
typealias ObjectList = UnorderedBag
