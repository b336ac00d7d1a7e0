// The page that shows recordings. Its markup, style and scripts are the files in Page, which `make page` embeds.
//
// Labels and titles are hostile text. They get into the page in two ways: the title with its markup escaped, and everything as JSON in which
// no character can end the script element (JSONText). The scripts put text into the document with `textContent`, never as HTML.

internal import EventLoop

enum TimelinePage {
    static func html(title: String, _ timeline: Timeline) -> String { page(title: escapedForHTML(title), data: data(timeline)) }

    /// Escapes text for HTML, quotes included, so that it may be the value of an attribute.
    static func escapedForHTML(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            case "'": result += "&#39;"
            // HTML does not allow it in any form.
            case "\0": result += "\u{FFFD}"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }
}
