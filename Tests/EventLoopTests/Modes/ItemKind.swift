// Any item of a loop, for the membership rules that apply to all kinds of items.

import EventLoop
import EventLoopTestSupport
import Testing

enum ItemKind: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case customSource, descriptorSource, port, timer, observer
    var testDescription: String { rawValue }

    func make() throws -> Item {
        switch self {
        case .customSource: return .source(RunLoop.CustomSource {})
        case .descriptorSource:
            let pipe = Pipe()
            return .source(try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in _ = pipe })
        case .port: return .source(RunLoop.Port { _, _ in })
        case .timer: return .timer(RunLoop.Timer(fireAt: .distantFuture) { _ in })
        case .observer: return .observer(RunLoop.Observer(activities: .all) { _, _ in })
        }
    }
}

enum Item: Sendable {
    case source(RunLoop.Source), timer(RunLoop.Timer), observer(RunLoop.Observer)

    var isValid: Bool {
        switch self {
        case .source(let source): source.isValid
        case .timer(let timer): timer.isValid
        case .observer(let observer): observer.isValid
        }
    }

    func invalidate() {
        switch self {
        case .source(let source): source.invalidate()
        case .timer(let timer): timer.invalidate()
        case .observer(let observer): observer.invalidate()
        }
    }
}

extension RunLoop {
    @discardableResult
    func add(_ item: Item, forMode mode: Mode = .default) -> Bool {
        switch item {
        case .source(let source): add(source, forMode: mode)
        case .timer(let timer): add(timer, forMode: mode)
        case .observer(let observer): add(observer, forMode: mode)
        }
    }

    func remove(_ item: Item, forMode mode: Mode = .default) {
        switch item {
        case .source(let source): remove(source, forMode: mode)
        case .timer(let timer): remove(timer, forMode: mode)
        case .observer(let observer): remove(observer, forMode: mode)
        }
    }

    func contains(_ item: Item, forMode mode: Mode = .default) -> Bool {
        switch item {
        case .source(let source): contains(source, forMode: mode)
        case .timer(let timer): contains(timer, forMode: mode)
        case .observer(let observer): contains(observer, forMode: mode)
        }
    }

    /// The modes among `modes` that contain the item.
    func modes(of item: Item, among modes: [Mode]) -> [Mode] { modes.filter { contains(item, forMode: $0) } }
}
