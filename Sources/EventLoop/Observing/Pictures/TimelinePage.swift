// The page that shows recordings. Its style, its text and its script are string literals in the files TimelinePage+….swift.
//
// Labels and titles are hostile text. They get into the page in two ways: the title with its markup escaped, and everything as JSON in which
// no character can end the script element (JSONText). The script puts text into the document with `textContent`, never as HTML.

enum TimelinePage {
    /// Nothing but what is in the page: no requests, no frames, no forms.
    private static let policy =
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

    static func html(title: String, _ timeline: Timeline) -> String {
        let title = escapedForHTML(title)
        return """
            <!doctype html>
            <html lang="en">
            <head>
            <meta charset="utf-8">
            <meta http-equiv="Content-Security-Policy" content="\(policy)">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <meta name="color-scheme" content="light dark">
            <meta name="referrer" content="no-referrer">
            <title>\(title)</title>
            <link rel="icon" href="data:,">
            <style>
            \(style)
            </style>
            <style id="colors"></style>
            </head>
            <body>
            \(body(title: title))
            <script type="application/json" id="data">\(data(timeline))</script>
            <script>
            "use strict";
            {
            \(modelScript)
            \(figuresScript)
            \(drawingScript)
            \(overlayScript)
            \(controlScript)
            \(tablesScript)
            start();
            }
            </script>
            </body>
            </html>

            """
    }

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
