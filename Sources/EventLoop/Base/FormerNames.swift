// Former names of types, until every file uses the new ones.

typealias ForkAwareMutex = ForkAwareMutex
typealias Gate = Latch
typealias Deque = Deque
typealias UnorderedBag = UnorderedBag
