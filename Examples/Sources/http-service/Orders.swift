// A resource of the service: orders and receipts in JSON.

import EventLoopHTTP
import HTTPTypes

import struct Foundation.Data
import class Foundation.JSONDecoder
import class Foundation.JSONEncoder

struct Order: Decodable {
    var article: String
    var count: Int
}

struct Receipt: Encodable {
    var total: Int
}

/// `curl -d '{"article": "pen", "count": 2}' http://127.0.0.1:8080/orders`
func placeOrder(_ request: HTTPServer.Request) throws -> HTTPServer.Response {
    guard request.head.method == .post else { return .init(status: .methodNotAllowed, headerFields: [.allow: "POST"]) }
    guard let order = try? JSONDecoder().decode(Order.self, from: Data(request.body)), (1...1_000).contains(order.count) else {
        return .text("an order has an article and a count from 1 to 1,000\n", status: .badRequest)
    }
    let receipt = try JSONEncoder().encode(Receipt(total: 3 * order.count))
    return .init(status: .created, headerFields: [.contentType: "application/json"], body: .bytes(Array(receipt)))
}
