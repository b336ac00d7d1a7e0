// The text of the page.

extension TimelinePage {
    /// `title` is escaped.
    static func body(title: String) -> String {
        """
        <main>
        <header>
          <h1><bdi>\(title)</bdi></h1>
          <p class="lede">A <b>run loop</b> is a thread that sleeps until something happens, calls the code that waits for it, and goes back to
            sleep. This page shows <span id="census">what some of them did</span>.</p>
        </header>
        <noscript><p class="notice">This page draws itself with a script, and your browser has scripts turned off.</p></noscript>
        <p class="notice" id="lost" hidden></p>
        <p class="notice" id="nothing" hidden>Nothing was recorded. A loop is recorded while it runs: from startRecording() to
          stopRecording(), with a run in between.</p>
        <div class="needs-events">
        <p hidden><label>Figures for <select id="which"></select></label></p>
        <section class="tiles" id="tiles" aria-label="At a glance"></section>
        <section class="card">
          <div class="bar-of-tools"><h2>Timeline</h2>
            <span class="tools"><button type="button" data-action="left" aria-label="Earlier" title="Earlier (left arrow)">←</button>
            <button type="button" data-action="right" aria-label="Later" title="Later (right arrow)">→</button>
            <button type="button" data-action="out" aria-label="Zoom out" title="Zoom out (-)">−</button>
            <button type="button" data-action="in" aria-label="Zoom in" title="Zoom in (+)">+</button>
            <button type="button" data-action="all" title="Show everything (0)">All</button></span></div>
          <canvas id="overview" role="img"
            aria-label="How busy the loops were over the whole recording, and the part that the timeline shows"></canvas>
          <div id="timeline" tabindex="0" role="application" aria-label="Timeline of the loops" aria-describedby="hint">
            <canvas id="picture"></canvas><canvas id="overlay"></canvas></div>
          <p class="quiet small" id="hint">Drag to move. Ctrl and the wheel, a pinch, or + and − zoom; 0 shows everything. A click shows what
            something is, a double click zooms to it. Keys: ← and → move, n and p select the next and previous, ↑ and ↓ what it is in and
            what is in it, Enter zooms to it.</p>
          <div id="details" aria-live="polite" data-hint="Nothing is selected. Click something in the timeline."></div>
        </section>
        <section class="card guide"><h2>How to read the timeline</h2>
          <p>Time runs from left to right. Each loop has some rows. What is below something happened inside it.</p>
          <dl>
            <div><dt><i class="chip" data-kind="run"></i>Run</dt><dd>The loop is switched on: from the call of run() until it returns. Code may run
              the loop again from inside a callout; such a nested run is drawn below that callout, with rows of its own.</dd></div>
            <div><dt><i class="chip" data-kind="pass"></i>Pass</dt><dd>One turn of the loop: look what is ready, sleep if nothing is, call what
              is ready. Where neither a sleep nor a callout is below a pass, the loop itself works.</dd></div>
            <div><dt><i class="chip" data-kind="sleep"></i>Sleep</dt><dd>Nothing to do. The thread waits in the kernel and uses no processor.
              Sleep is good: a sleeping loop answers at once.</dd></div>
            <div><dt><i class="chip callout"></i>Callout</dt><dd>The loop calls somebody's code: a timer, a handler, a closure. It cannot serve
              anything else until that code returns. So look for long callouts. The colors say what was called:</dd></div>
          </dl>
          <dl id="legend"></dl>
        </section>
        <div class="pair">
        <section class="card"><h2>Slowest callouts</h2>
          <p class="quiet">Click a time to see it in the timeline. Nested runs count as a part of the callout that runs them.</p>
          <div class="scroll"><table id="slowest"></table></div><p id="slowest-none" class="quiet">No code was called.</p></section>
        <section class="card"><h2>How long the loop stayed away from the kernel</h2>
          <p class="quiet">A loop asks the kernel once in each pass what is ready, and sleeps there if nothing is. In between it is away, and
            everything that becomes ready waits. Short is good.</p>
          <div class="scroll"><table id="distribution"></table></div>
          <h3>The longest</h3>
          <div class="scroll"><table id="away"></table></div><p id="away-none" class="quiet">It was never away.</p></section>
        </div><div class="pair uneven">
        <section class="card"><h2>Where the time went, by kind</h2>
          <p class="quiet">Every moment counts once, for what was going on innermost.</p>
          <div class="scroll"><table id="kinds"></table></div></section>
        <section class="card"><h2>Where the time went, by place</h2>
          <p class="quiet">A place is the line that made the timer or source, or queued the closure. Its time leaves out what is nested in it.
            Click a time to highlight the callouts of a place in the timeline.</p>
          <div class="scroll"><table id="places"></table></div><p id="places-none" class="quiet">No code was called.</p>
          <p id="places-rest" class="quiet"></p></section>
        </div>
        </div>
        <div id="tip" hidden></div>
        </main>
        """
    }
}
