// The text that replays a run: `file:line:seed:order`.
//
// The order is that of a strategy (`random`, `priorities2`, `first`), or `choices` and the steps at which another than the first ready job ran:
// `12.1.3` means that at step 12 the job at index 1 ran, of 3 that were ready; `12x20.1.3` the same at twenty steps.

internal import CSimulation

struct Schedule {
    enum Order {
        case strategy(SimulationStrategy)
        case choices([csim_choice])
    }

    var file: String
    var line: Int
    var seed: UInt64
    var order: Order

    var text: String { "\(file):\(line):\(seed):\(orderText)" }

    private var orderText: String {
        switch order {
        case .strategy(.random), .strategy(.mixed): "random"
        case .strategy(.firstComeFirstServed): "first"
        case .strategy(.priorities(let changes)): "priorities\(max(changes, 0))"
        case .choices(let choices): (["choices"] + Self.parts(choices)).joined(separator: "-")
        }
    }

    private static func parts(_ choices: [csim_choice]) -> [String] {
        var parts: [String] = []
        var index = 0
        while index < choices.count {
            let first = choices[index]
            var count = 1
            while index + count < choices.count, choices[index + count].step == first.step + UInt32(count),
                choices[index + count].choice == first.choice, choices[index + count].ready == first.ready
            { count += 1 }
            parts.append("\(first.step)\(count > 1 ? "x\(count)" : "").\(first.choice).\(first.ready)")
            index += count
        }
        return parts
    }

    init(file: String, line: Int, seed: UInt64, order: Order) { (self.file, self.line, self.seed, self.order) = (file, line, seed, order) }

    /// Nil if the text does not begin with a file and a line.
    static func place(of text: String) -> (file: String, line: Int)? {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count >= 2 else { return nil }
        // A file's name may have colons, so the four fields are counted from the end.
        let count = max(parts.count - 3, 1)
        guard count < parts.count, let line = Int(parts[count]), line >= 0 else { return nil }
        let file = parts[..<count].joined(separator: ":")
        return file.isEmpty ? nil : (file, line)
    }

    /// Nil if it cannot be read.
    init?(_ text: String) {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count >= 4, let place = Self.place(of: text), let seed = UInt64(parts[parts.count - 2]),
            let order = Self.order(String(parts[parts.count - 1]))
        else { return nil }
        self.init(file: place.file, line: place.line, seed: seed, order: order)
    }

    private static func order(_ text: String) -> Order? {
        if text == "random" { return .strategy(.random) }
        if text == "first" { return .strategy(.firstComeFirstServed) }
        if text.hasPrefix("priorities") {
            guard let changes = Int(text.dropFirst("priorities".count)), changes >= 0 else { return nil }
            return .strategy(.priorities(changes: changes))
        }
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.first == "choices" else { return nil }
        var choices: [csim_choice] = []
        for part in parts.dropFirst() {
            let fields = part.split(separator: ".", omittingEmptySubsequences: false)
            guard fields.count == 3, let choice = UInt32(fields[1]), let ready = UInt32(fields[2]) else { return nil }
            let range = fields[0].split(separator: "x", omittingEmptySubsequences: false)
            guard range.count <= 2, let step = UInt32(range[0]), let count = range.count == 2 ? UInt32(range[1]) : 1 else { return nil }
            guard choice > 0, choice < ready, count > 0, count <= 100_000_000, step <= UInt32.max - count else { return nil }
            if let last = choices.last, last.step >= step { return nil }
            for offset in 0..<count { choices.append(csim_choice(step: step + offset, choice: choice, ready: ready)) }
        }
        return .choices(choices)
    }
}
