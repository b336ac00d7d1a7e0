// The last part of the page's script: connects the parts, and draws the page for the first time.
"use strict";

function start() {
  for (const loop of loops) loop.asleep = loop.own.reduce((sum, own, i) => groupOf(loop, i).kind === "sleep" ? sum + own : sum, 0);
  const lost = loops.filter(loop => loop.overwritten > 0);
  find("lost").hidden = !lost.length;
  find("lost").textContent = lost.map(loop => `${loops.length > 1 ? loop.name.slice(0, 80) + ": " : ""}${plural(loop.overwritten,
    "earlier event was", "earlier events were")} overwritten, because the recording keeps the newest ${whole.format(loop.count)}.`).join(" ");
  find("nothing").hidden = eventCount > 0;
  find("census").textContent = `${plural(loops.length, "run loop", "run loops")} with ${eventCount ? plural(eventCount, "event", "events") : "no events"}`;
  find("which").append(new Option("All loops", ""), ...loops.map((loop, i) => new Option(loop.name.slice(0, 80), i)));
  find("which").parentElement.hidden = loops.length < 2;
  find("which").addEventListener("change", showFigures);
  for (const part of document.querySelectorAll(".needs-events")) part.hidden = !eventCount;
  const actions = { in: () => zoom(0.5), out: () => zoom(2), all: () => show(0, total), left: () => pan(-0.5), right: () => pan(0.5) };
  for (const item of document.querySelectorAll("[data-action]")) item.addEventListener("click", actions[item.dataset.action]);
  showColors();
  showLegend();
  const all = showFigures();
  if (all.slowest.length) select(all.slowest[0]); else showDetails();
  control(find("timeline"));
  controlOverview();
  followAddress();
  addEventListener("hashchange", followAddress);
  dark.addEventListener("change", () => { showColors(); plan(); });
  new ResizeObserver(plan).observe(canvas);
  draw();
  // For tests.
  document.documentElement.dataset.events = eventCount;
}

start();
