// The second part of the page's script: computes where the time went.
"use strict";

// Stretches in which the loop was inside a run and did not ask the kernel: what became ready in the meantime had to wait that long.
// A pass asks once: where it sleeps, or without a sleep, which the recording does not show; then its beginning stands for it.
function absences(loop) {
  const found = [], open = [], sleeps = new Set();
  for (let i = 0; i < loop.count; i++) if (groupOf(loop, i).kind === "sleep") sleeps.add(loop.parent[i]);
  let since = -1;
  const isAway = () => open.length > 0 && groupOf(loop, open.at(-1)).kind !== "sleep";
  const add = end => {
    const start = Math.max(since, loop.first);
    if (end > start) found.push({ loop, start, end });
  };
  const note = (time, wasAway) => {
    const away = isAway();
    if (wasAway && !away) add(time);
    if (away && !wasAway) since = time;
  };
  const close = until => {
    while (open.length && loop.end[open.at(-1)] <= until) {
      const wasAway = isAway(), time = loop.end[open.pop()];
      note(time, wasAway);
    }
  };
  for (let i = 0; i < loop.count; i++) {
    if (groupOf(loop, i).kind === "wakeUp") continue;
    close(loop.start[i]);
    const wasAway = isAway();
    open.push(i);
    note(loop.start[i], wasAway);
    if (wasAway && groupOf(loop, i).kind === "pass" && !sleeps.has(i)) {
      add(loop.start[i]);
      since = loop.start[i];
    }
  }
  close(Infinity);
  return found;
}
for (const loop of loops) loop.absences = absences(loop);

// The callout that took most of a stretch of time; -1 if there is none.
function mainCallout({ loop, start, end }) {
  let best = -1, longest = -1;
  for (let i = firstStartingAt(loop, start); i < loop.count && loop.start[i] < end; i++) {
    if (loop.start[i] < start || !groupOf(loop, i).isCallout || loop.own[i] <= longest) continue;
    best = i;
    longest = loop.own[i];
  }
  return best;
}
function firstStartingAt(loop, time) {
  let low = 0, high = loop.count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (loop.start[middle] >= time) high = middle; else low = middle + 1;
  }
  return low;
}

// Times by kind and by place. Each moment is counted once, for the innermost event at that moment.
function figures(chosen) {
  const byKind = new Map(), byPlace = new Map(), slowest = [], away = [];
  let asleep = 0, inRuns = 0, span = 0, callouts = 0;
  const add = (map, name, group, own, length) => {
    let entry = map.get(name);
    if (!entry) map.set(name, entry = { group, own: 0, count: 0, longest: -1, loop: null, event: -1 });
    entry.own += own;
    entry.count++;
    return length > entry.longest ? entry : null;
  };
  for (const loop of chosen) {
    span += loop.last - loop.first;
    for (const absence of loop.absences) away.push(absence);
    for (let i = 0; i < loop.count; i++) {
      const group = groupOf(loop, i), length = loop.end[i] - loop.start[i];
      if (group.kind === "wakeUp") continue;
      if (group.kind === "sleep") asleep += loop.own[i];
      if (loop.parent[i] < 0) inRuns += Math.max(0, loop.end[i] - Math.max(loop.start[i], loop.first));
      const name = group.kind === "run" || group.kind === "pass" ? "loop" : group.kind;
      const longer = add(byKind, name, group, loop.own[i], length);
      if (longer) longer.longest = length;
      if (!group.isCallout) continue;
      callouts++;
      const place = add(byPlace, [group.kind, group.label, group.site].join("\u0000"), group, loop.own[i], length);
      if (place) Object.assign(place, { longest: length, loop, event: i });
      slowest.push({ loop, event: i, length });
      // Keeps the list short without sorting all of it.
      if (slowest.length > 2000) slowest.sort((a, b) => b.length - a.length).length = 50;
    }
  }
  slowest.sort((a, b) => b.length - a.length);
  away.sort((a, b) => (b.end - b.start) - (a.end - a.start));
  const largest = (a, b) => b.own - a.own;
  return { byKind: [...byKind].sort((a, b) => largest(a[1], b[1])), byPlace: [...byPlace.values()].sort(largest),
    slowest: slowest.slice(0, 15), away, asleep, inRuns, span, callouts };
}

// ---- Texts
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const plural = (n, one, many) => n === 1 ? "one " + one : whole.format(n) + " " + many;
function duration(ns) {
  const digits = (value, unit) => Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 2 }) + " " + unit;
  if (ns < 999.5) return Math.round(ns) + " ns";
  if (ns < 999.5e3) return digits(ns / 1e3, "µs");
  if (ns < 999.5e6) return digits(ns / 1e6, "ms");
  if (ns < 120e9) return digits(ns / 1e9, "s");
  return ns < 7200e9 ? `${Math.floor(ns / 60e9)} min ${Math.round(ns / 1e9 % 60)} s` : digits(ns / 3600e9, "h");
}
function percent(share) {
  const value = 100 * share;
  return !(value > 0) ? "0 %" : value < 0.1 ? "< 0.1 %" : (value < 10 ? value.toFixed(1) : Math.round(value)) + " %";
}
// A point in time, with as many decimals as a step of the axis needs.
function moment(ns, step) {
  const [size, unit] = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 100 ? [1e3, "µs"] : [1, "ns"];
  const decimals = Math.max(0, Math.min(3, -Math.floor(Math.log10(step / size) + 1e-9)));
  return (ns / size).toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }) + " " + unit;
}
