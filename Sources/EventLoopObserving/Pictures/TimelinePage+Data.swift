// What the page shows, as compact JSON.
//
//     strings   each string once
//     kinds     the names of the kinds
//     groups    kind, mode, depth, label, site, kind, mode, …: numbers of kinds and strings, -1 for none; each combination once
//     loops     name, overwritten, since (nanoseconds from which on no event is missing), events: group, nanoseconds after the start of the one before, length in nanoseconds, group, …
//     arrows    loop, event, nanoseconds after the start, loop, event, …: from the event that posted to the one that delivered
//
// The events are in the order of `Timeline.Track.spans`: by start, a parent before its children. The page finds the parents itself.

internal import EventLoop

extension TimelinePage {
    static func data(_ timeline: Timeline) -> String {
        let count = timeline.tracks.reduce(0) { $0 + $1.spans.count }
        var json = JSONText(reserving: 4096 + 16 * count)
        var tables = Tables()
        json.write("{\"kinds\":")
        json.write(list: RunLoop.Recording.Kind.allCases) { $0.write(quoted: $1.rawValue) }
        json.write(",\"loops\":")
        json.write(list: timeline.tracks) { json, track in
            json.write("{\"name\":")
            json.write(quoted: track.name)
            json.write(",\"overwritten\":")
            json.write(track.overwritten)
            json.write(",\"since\":")
            json.write(track.completeSince)
            json.write(",\"events\":")
            var last: Int64 = 0
            json.write(list: track.spans) { json, span in
                json.write(tables.group(of: track.events[span.event]))
                json.write(",")
                json.write(span.start - last)
                json.write(",")
                json.write(span.end - span.start)
                last = span.start
            }
            json.write("}")
        }
        json.write(",\"arrows\":")
        json.write(list: timeline.arrows) { json, arrow in
            for number in [arrow.source.track, arrow.source.span, Int(arrow.at), arrow.target.track] {
                json.write(number)
                json.write(",")
            }
            json.write(arrow.target.span)
        }
        json.write(",\"groups\":")
        json.write(list: tables.groups) { $0.write($1) }
        json.write(",\"strings\":")
        json.write(list: tables.strings) { $0.write(quoted: $1) }
        json.write("}")
        return json.string
    }

    /// What many events have in common is written once.
    private struct Tables {
        /// An event without its times; the mode, the label and the site as numbers of strings.
        struct Group: Hashable {
            var kind: RunLoop.Recording.Kind
            var mode: Int
            var depth: Int
            var label: Int
            var site: Int
        }

        /// A string as it is written: `String` counts two spellings of one letter as equal, and the page would show one for the other.
        struct Text: Hashable {
            let string: String
            static func == (one: Text, other: Text) -> Bool { one.string.utf8.elementsEqual(other.string.utf8) }
            // Equal bytes are equal strings.
            func hash(into hasher: inout Hasher) { string.hash(into: &hasher) }
        }

        private(set) var strings: [String] = []
        private(set) var groups: [Int] = []
        private var numberOfString: [Text: Int] = [:]
        private var numberOfGroup: [Group: Int] = [:]
        private let numberOfKind = Dictionary(uniqueKeysWithValues: zip(RunLoop.Recording.Kind.allCases, 0...))

        mutating func group(of event: RunLoop.Recording.Event) -> Int {
            let group = Group(
                kind: event.kind, mode: stringNumber(event.mode.rawValue), depth: event.depth, label: stringNumber(event.label),
                site: stringNumber(event.createdAt))
            if let number = numberOfGroup[group] { return number }
            let number = numberOfGroup.count
            numberOfGroup[group] = number
            groups += [numberOfKind[group.kind]!, group.mode, group.depth, group.label, group.site]  // every kind has a number
            return number
        }

        private mutating func stringNumber(_ string: String?) -> Int {
            guard let string else { return -1 }
            if let number = numberOfString[Text(string: string)] { return number }
            strings.append(string)
            numberOfString[Text(string: string)] = strings.count - 1
            return strings.count - 1
        }
    }
}

extension JSONText {
    fileprivate mutating func write<Elements: Sequence>(list: Elements, _ writeElement: (inout JSONText, Elements.Element) -> Void) {
        write("[")
        var isFirst = true
        for element in list {
            if !isFirst { write(",") }
            isFirst = false
            writeElement(&self, element)
        }
        write("]")
    }
}
