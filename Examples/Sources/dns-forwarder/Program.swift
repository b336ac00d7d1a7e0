// A DNS forwarder that caches answers for as long as their records live.
//
//   dns-forwarder SERVER SERVERPORT [PORT]     a numeric address; on 127.0.0.1; SIGTERM ends it, and prints what it has done
//
// Everything happens in handlers on one loop, so the tables need no lock. Each has a limit, because the clients are strangers. Clients that ask
// the same question at the same time share one query, and an answer counts only if its number and its question are those of the query.

import EventLoop
import EventLoopDatagrams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

final class Forwarder: Sendable {
    private struct Client {
        let peer: RunLoop.SocketAddress
        let id: UInt16
    }
    private struct Query {
        let question: [UInt8]
        var clients: [Client]
        let limit: RunLoop.Timer
    }
    private struct State {
        var queries: [UInt16: Query] = [:]
        var ids: [[UInt8]: UInt16] = [:]
        var cache: [[UInt8]: (answer: Message, since: RunLoop.Instant)] = [:]
        var (asked, fromCache) = (0, 0)
    }
    private static let (mostQueries, mostClients, mostAnswers) = (1_000, 64, 10_000)

    private let loop: RunLoop
    private let clients: DatagramSocket
    private let server: DatagramSocket
    private let state: LoopBound<State>

    var address: RunLoop.SocketAddress { clients.localAddress }
    var report: String { "asked \(state.value.asked), answered from the cache \(state.value.fromCache)" }

    init(to server: RunLoop.SocketAddress, port: UInt16, on loop: RunLoop) throws {
        self.loop = loop
        state = LoopBound(State(), to: loop)
        clients = try DatagramSocket(boundTo: .ipv4(host: "127.0.0.1", port: port), on: loop)
        self.server = try DatagramSocket(connectedTo: server, on: loop)
    }

    func start() {
        clients.onReceive { [self] _, datagram in asked(datagram) }
        server.onReceive { [self] _, datagram in answered(datagram) }
    }

    func end() {
        for socket in [clients, server] { socket.close() }
    }

    private func asked(_ datagram: Datagram) {
        guard let query = Message(datagram.bytes), !query.isResponse else { return }
        state.value.asked += 1
        let client = Client(peer: datagram.peer, id: query.id)
        if let answer = cached(query.question) {
            state.value.fromCache += 1
            return reply(answer, client)
        }
        if let id = state.value.ids[query.question] {
            if state.value.queries[id]!.clients.count < Self.mostClients { state.value.queries[id]!.clients.append(client) }
            return
        }
        guard state.value.queries.count < Self.mostQueries else { return }
        // A number that nobody can guess, and that no other query has.
        var id = UInt16.random(in: 0...UInt16.max)
        while state.value.queries[id] != nil { id = UInt16.random(in: 0...UInt16.max) }  // ends: there are far fewer queries
        let limit = RunLoop.Timer(after: .seconds(5)) { [self, id] _ in forget(id) }
        loop.add(limit)
        state.value.queries[id] = Query(question: query.question, clients: [client], limit: limit)
        state.value.ids[query.question] = id
        var forwarded = query
        forwarded.id = id
        server.send(forwarded.bytes)
    }

    private func answered(_ datagram: Datagram) {
        guard let answer = Message(datagram.bytes), answer.isResponse, let query = state.value.queries[answer.id],
            query.question == answer.question
        else { return }
        forget(answer.id)
        for client in query.clients { reply(answer, client) }
        if answer.isWorthKeeping && answer.lifetime > 0 { keep(answer) }
    }

    private func forget(_ id: UInt16) {
        guard let query = state.value.queries.removeValue(forKey: id) else { return }
        query.limit.invalidate()
        state.value.ids[query.question] = nil
    }

    private func reply(_ answer: Message, _ client: Client) {
        var answer = answer
        answer.id = client.id
        clients.send(answer.bytes, to: client.peer)
    }

    // MARK: The cache

    private func cached(_ question: [UInt8]) -> Message? {
        guard let (answer, since) = state.value.cache[question] else { return nil }
        let age = Int(since.duration(to: loop.clock.now) / .seconds(1))
        if age < answer.lifetime { return answer.aged(age) }
        state.value.cache[question] = nil
        return nil
    }

    private func keep(_ answer: Message) {
        let now = loop.clock.now
        if state.value.cache.count >= Self.mostAnswers {
            state.value.cache = state.value.cache.filter { $1.since.duration(to: now) < .seconds($1.answer.lifetime) }
            if state.value.cache.count >= Self.mostAnswers { return }
        }
        state.value.cache[answer.question] = (answer, now)
    }
}

@main
enum Program {
    static func main() throws {
        let words = CommandLine.arguments
        guard words.count > 2, let serverPort = UInt16(words[2]) else { return print("usage: dns-forwarder SERVER SERVERPORT [PORT]") }
        let server: RunLoop.SocketAddress =
            words[1].contains(":") ? .ipv6(host: words[1], port: serverPort) : .ipv4(host: words[1], port: serverPort)
        let loop = RunLoop.main
        let forwarder = try Forwarder(to: server, port: words.count > 3 ? UInt16(words[3]) ?? 0 : 0, on: loop)
        forwarder.start()
        loop.add(
            try RunLoop.SignalSource(signal: SIGTERM) { _, _ in
                say(forwarder.report)
                loop.stop()
            })
        say("listening on \(forwarder.address)")
        loop.run()
        forwarder.end()
    }
}

/// `print` alone would keep lines back that go into a file.
private func say(_ text: String) {
    print(text)
    fflush(nil)
}
