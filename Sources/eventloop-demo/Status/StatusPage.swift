// The page /status. It has no content of its own: its script fetches /status.json each second.

enum StatusPage {
    /// Nothing but what is in the page, and requests to this server.
    static let policy = """
        default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; \
        form-action 'none'; frame-ancestors 'none'
        """

    static let html = """
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta name="color-scheme" content="light dark">
        <title>EventLoop status</title>
        <link rel="icon" href="data:,">
        <style>
        \(style)
        </style>
        </head>
        <body>
        \(body)
        <script>
        \(script)
        </script>
        </body>
        </html>

        """

    private static let body = """
        <main>
        <header>
          <div class="title">
            <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
              <path d="M25.6 11.2A11 11 0 1 0 27 16"/><path d="M27.4 4.6v7.2h-7.2"/></svg>
            <h1>EventLoop</h1>
            <span id="state" class="pill">connecting</span>
          </div>
          <p id="where" class="quiet"></p>
        </header>
        <p class="lede">A <b>run loop</b> is a thread that sleeps until something happens, handles it, and goes back to sleep.
          This server consists of <span id="census">a few of them</span>. Each card is one loop, as it is right now.</p>
        <p id="notice" role="status" hidden></p>
        <noscript><p class="notice">This page draws itself with a script. The same numbers are at /status.json.</p></noscript>
        <section class="totals" aria-label="The whole server">
          <div class="tile wide"><h2>Requests per second</h2>
            <div class="row"><b id="rate">–</b><div id="rateline" class="line"></div></div></div>
          <div class="tile"><h2>Requests so far</h2><b id="answered">–</b></div>
          <div class="tile"><h2>In progress</h2><b id="waiting">–</b></div>
          <div class="tile"><h2>Connections</h2><b id="open">–</b></div>
        </section>
        <section id="loops" aria-label="The loops"></section>
        <section id="stalls" aria-label="Stalls"></section>
        <p class="quiet look"><a href="/timeline?ms=500">Record all loops for half a second</a> and see what they did, callout by callout;
          <a href="/trace.json?ms=500" download="eventloop-trace.json">the same for Perfetto</a>.
          <a href="/stall?ms=400">Block a loop</a> for 400 ms, and watch this page find it.</p>
        <section class="guide">
          <h2>How to read this</h2>
          <dl>
            <dt>The ring</dt><dd>How much of the last second the loop's thread used a processor. An empty ring is a good sign: a loop with
              nothing to do sleeps in the kernel and costs nothing.</dd>
            <dt>A pass</dt><dd>One turn of the loop: wake up, handle what is ready, go back to sleep. Under load one pass handles many
              requests, so passes grow more slowly than requests.</dd>
            <dt>Events</dt><dd>What the loop delivers: sources (bytes on a socket, a signal, a message), timers, closures from other
              threads, and jobs of Swift tasks. The HTTP server is libevent's own, a C library on the same loop: all that it handles in one pass
              counts as one event.</dd>
            <dt>Away from the kernel</dt><dd>While a loop works, it asks the kernel nothing: a request that arrives then waits that long. 99 of
              100 waited no longer than the number says.</dd>
            <dt>Stalls</dt><dd>A handler that takes a quarter of a second or more is reported while it does, with the line that made it. A
              loop whose thread had little of the processor meanwhile was waiting, or the machine was busy.</dd>
            <dt>Modes</dt><dd>A loop serves only the sources and timers of the mode it runs in, so code can wait for one thing and leave
              everything else for later.</dd>
          </dl>
        </section>
        </main>
        """
}
