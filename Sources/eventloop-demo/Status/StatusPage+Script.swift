// The script of the status page.
//
// Everything from the server is put into the page as text (`textContent`), never as HTML: labels of timers may contain any text, and the
// route /slow lets every client choose one.

extension StatusPage {
    static let script = #"""
        "use strict";
        const seconds = 60, cards = new Map();
        const find = id => document.getElementById(id);
        const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
        const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
        const count = n => n < 100000 ? whole.format(n) : short.format(n);
        const percent = share => share > 0 && share < 0.005 ? "<1" : String(Math.round(share * 100));
        const plural = (n, one, many) => n === 1 ? "one " + one : whole.format(n) + " " + many;

        function make(tag, className, ...children) {
          const element = document.createElement(tag);
          if (className) element.className = className;
          element.append(...children);
          return element;
        }
        function draw(tag, attributes) {
          const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
          for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
          return element;
        }
        function set(element, text) { if (element.textContent !== text) element.textContent = text; }

        // A line of the last minute. The latest second is at the right edge.
        function sparkline(place) {
          const svg = draw("svg", { class: "spark", viewBox: `0 0 ${seconds - 1} 100`, preserveAspectRatio: "none",
            "aria-hidden": "true" });
          const area = draw("path", { class: "area" }), edge = draw("path", { class: "edge" });
          svg.append(area, edge);
          place.replaceChildren(svg);
          return (values, top) => {
            const highest = top || Math.max(1, ...values), left = seconds - values.length;
            const points = values.map((value, i) => `${left + i} ${(100 - 96 * Math.min(1, value / highest)).toFixed(1)}`);
            edge.setAttribute("d", points.length > 1 ? "M" + points.join("L") : "");
            area.setAttribute("d", points.length > 1 ? `M${left} 100L${points.join("L")}L${seconds - 1} 100Z` : "");
          };
        }

        // How busy the thread is, as a part of a circle.
        function ring() {
          const round = 2 * Math.PI * 36;
          const svg = draw("svg", { class: "ring", viewBox: "0 0 84 84", role: "img" });
          const arc = draw("circle", { class: "arc none", cx: 42, cy: 42, r: 36, "stroke-dasharray": `0 ${round}` });
          const value = draw("text", { x: 42, y: 38 }), unit = draw("text", { x: 42, y: 55, class: "unit" });
          unit.textContent = "busy";
          svg.append(draw("circle", { cx: 42, cy: 42, r: 36 }), arc, value, unit);
          return { svg, show(share) {
            set(value, percent(share) + "%");
            arc.setAttribute("class", "arc" + (share < 0.005 ? " none" : share > 0.85 ? " hot" : ""));
            arc.setAttribute("stroke-dasharray", `${(share * round).toFixed(1)} ${round}`);
            svg.setAttribute("aria-label", percent(share) + " percent busy");
          } };
        }

        function list(className, rows) {
          const element = make("dl", className), values = {};
          for (const [key, title] of rows) {
            values[key] = make("dd");
            if (className === "now") element.append(make("div", "", make("dt", "", title), values[key]));
            else element.append(make("dt", "", title), values[key]);
          }
          return { element, values };
        }

        function card(loop) {
          const circle = ring(), name = make("h2", "", loop.name), dot = make("span", "dot"), state = make("span");
          const place = make("div", "line"), peak = make("span", "peak");
          const now = list("now", loop.servesHTTP
            ? [["requestsPerSecond", "Requests/s"], ["passesPerSecond", "Passes/s"], ["eventsPerSecond", "Events/s"],
               ["connections", "Connections"], ["inProgress", "In progress"], ["requests", "Requests"]]
            : [["passesPerSecond", "Passes/s"], ["eventsPerSecond", "Events/s"], ["depth", "Runs"],
               ["sources", "Sources"], ["timers", "Timers"], ["blocks", "Blocks"]]);
          const since = list("since", [["passes", "Passes"], ["waits", "Times it slept"], ["wakeUps", "Times another thread woke it"],
            ["sources", "Sources handled"], ["timers", "Timers fired"], ["blocks", "Blocks performed"], ["jobs", "Jobs of Swift tasks"],
            ["longest", "Longest work between two sleeps"], ["delays", "Away from the kernel, 99 of 100"],
            ["lateness", "Timers late, 99 of 100"],
            ...loop.servesHTTP ? [["accepted", "Connections accepted"], ["pauses", "Pauses for want of descriptors"]] : [],
            ["modes", "Modes"]]);
          const items = make("div", "items"), what = loop.servesHTTP ? "Requests/s, last minute" : "Processor, last minute";
          const role = loop.servesHTTP ? "Answers HTTP requests" : "Takes signals and commands";
          // The address …/status#details shows everything at once.
          const slowest = make("div", "slowest");
          const more = [make("details", "", make("summary", "", "Since the start"), since.element),
            make("details", "", make("summary", "", "Slowest handlers"), slowest),
            make("details", "", make("summary", "", "What is in this loop"), items)];
          for (const part of more) part.open = location.hash === "#details";
          const element = make("article", "card",
            make("div", "head", circle.svg, make("div", "", name, make("p", "", role), make("p", "", dot, state))),
            make("div", "chart", make("div", "row", make("h3", "", what), peak), place), now.element, ...more);
          find("loops").append(element);
          return { element, circle, dot, state, peak, line: sparkline(place), now: now.values, since: since.values, items, slowest };
        }

        const digits = value => value < 100 ? value.toPrecision(3) : whole.format(value);
        const time = ms => ms < 0.001 ? "0" : ms < 1 ? digits(ms * 1000) + " µs" : ms < 1000 ? digits(ms) + " ms" : digits(ms / 1000) + " s";

        // What the watchdog reported, newest first. A report stays open if its reader has opened it.
        const openStalls = new Set();
        function showStalls(status) {
          const articles = status.stalls.map(one => {
            const frames = make("pre", "", one.backtrace.join("\n") || "No backtrace could be taken.");
            const more = make("details", "", make("summary", "", "What the thread was doing"), frames);
            more.open = openStalls.has(one.number) || location.hash === "#details";
            more.addEventListener("toggle", () => more.open ? openStalls.add(one.number) : openStalls.delete(one.number));
            return make("article", "stall",
              make("h3", "", `${one.loop} was stuck in ${one.label || one.kind}`),
              make("p", "", `${one.createdAt ? "Made at " + one.createdAt + ". " : ""}Reported after ${time(one.milliseconds)}, `
                + `${time(one.processor)} of it on a processor, ${age(one.secondsAgo)} ago.`), more);
          });
          const title = status.stallCount ? [make("h2", "", plural(status.stallCount, "stall", "stalls"))] : [];
          const warnings = status.warnings.map(text => make("article", "stall warning", make("h3", "", "A likely mistake"), make("p", "", text)));
          find("stalls").replaceChildren(...title, ...articles, ...warnings);
        }

        const states = { asleep: "Asleep, waiting", awake: "Awake, at work", "not running": "Between two runs",
          ended: "Ended" };

        function showLoop(loop) {
          if (!cards.has(loop.name)) cards.set(loop.name, card(loop));
          const view = cards.get(loop.name);
          view.circle.show(loop.busy);
          view.dot.className = "dot " + (loop.state === "awake" || loop.state === "ended" ? loop.state : "");
          set(view.state, states[loop.state] || loop.state);
          if (loop.servesHTTP) {
            view.line(loop.requestHistory);
            set(view.peak, "peak " + count(Math.max(0, ...loop.requestHistory)));
          } else {
            view.line(loop.busyHistory, Math.max(0.1, ...loop.busyHistory));
            set(view.peak, "peak " + percent(Math.max(0, ...loop.busyHistory)) + "%");
          }
          for (const [key, element] of Object.entries(view.now)) set(element, count(loop[key]));
          for (const [key, element] of Object.entries(view.since)) {
            set(element, key === "modes" ? loop.modes.join(", ")
              : key === "longest" ? time(loop.longest)
              : key === "delays" || key === "lateness" ? (loop[key].count ? time(loop[key].p99) : "–") : count(loop[key]));
          }
          const rows = loop.slowest.map(one => make("div", "", make("b", "", time(one.milliseconds)),
            make("span", "", [one.label || one.kind, one.createdAt].filter(Boolean).join(" · ") + ` · ${count(one.count)} times`)));
          view.slowest.replaceChildren(...rows.length ? rows : [make("div", "quiet", "None yet.")]);
          const lines = loop.items.map(text => make("div", text.startsWith("    ") ? "" : "mode", text.trim()));
          if (view.items.textContent !== lines.map(line => line.textContent).join("")) view.items.replaceChildren(...lines);
        }

        function age(seconds) {
          const s = Math.floor(seconds);
          return s < 60 ? s + " s"
            : s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
        }

        function notice(text, className) {
          find("notice").hidden = !text;
          find("notice").className = className || "";
          set(find("notice"), text);
        }

        const totalLine = sparkline(find("rateline"));
        let lastState = "";

        function show(status) {
          const servers = status.loops.filter(loop => loop.servesHTTP), sum = key => servers.reduce((all, loop) => all + loop[key], 0);
          const history = servers.reduce((all, loop) => loop.requestHistory.map((value, i) => value + (all[i] || 0)), []);
          lastState = status.state;
          document.body.classList.remove("lost-contact");
          set(find("state"), status.state);
          find("state").className = "pill " + status.state;
          set(find("where"), `${status.url} · process ${status.pid} · up for ${age(status.uptime)} · ${status.name}`);
          set(find("census"), `${plural(servers.length, "loop that answers", "loops that answer")} HTTP requests, and the main loop`);
          set(find("rate"), count(sum("requestsPerSecond")));
          set(find("answered"), count(sum("requests")));
          set(find("waiting"), count(sum("inProgress")));
          set(find("open"), count(sum("connections")));
          totalLine(history);
          find("loops").className = status.loops.length === 4 ? "pairs" : "";
          // After a restart, the server may have fewer loops.
          for (const [name, view] of cards) {
            if (status.loops.some(loop => loop.name === name)) continue;
            view.element.remove();
            cards.delete(name);
          }
          status.loops.forEach(showLoop);
          showStalls(status);
          notice(status.state === "draining"
            ? "The server is shutting down. It accepts no new connections, and answers the requests that it has read."
            : sum("pauses") > 0 && sum("inProgress") > 1
            ? "The server has run out of file descriptors at times; new clients then wait." : "");
        }

        function lost() {
          document.body.classList.add("lost-contact");
          set(find("state"), lastState === "draining" ? "ended" : "no contact");
          find("state").className = "pill lost";
          notice(lastState === "draining" ? "The server has ended. These are its last numbers."
            : "The server does not answer. It has ended, or is very busy. This page keeps asking.", "lost");
        }

        async function poll() {
          try {
            const response = await fetch("/status.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
            show(await response.json());
          } catch (error) {
            console.error(error);
            lost();
          }
          setTimeout(poll, 1000);
        }
        poll();
        """#
}
