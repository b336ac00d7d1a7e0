// The first part of the page's script: reads the data, and finds out which event is inside which.
"use strict";

// ---- The recordings. Times are nanoseconds after the earliest event.
const data = JSON.parse(document.getElementById("data").textContent);
const text = number => number < 0 ? "" : data.strings[number];

// Kinds: a title, an explanation, and a color for the light and the dark page. No color: the loop's own spans.
const kinds = Object.assign(Object.create(null), {
  run: ["Run", "The loop is switched on: from the call of run() until it returns. Code may run the loop again inside a callout; " +
    "such a nested run is drawn below the callout."],
  pass: ["Pass", "One turn of the loop: look what is ready, sleep if nothing is, call what is ready."],
  sleep: ["Sleep", "Nothing to do: the thread waits in the kernel and uses no processor."],
  wakeUp: ["Wake-up", "Another thread gave the loop something to do, and woke it."],
  observer: ["Observer", "Code that asked to be called at certain steps of each pass.", "#6f5fc9", "#9b8cff"],
  timer: ["Timer", "Code that asked to be called at a certain time.", "#d9480f", "#ff922b"],
  customSource: ["Custom source", "Code that is called when another part of the program signals it.", "#2b8a3e", "#51cf66"],
  descriptorSource: ["Descriptor source", "A file, pipe or socket became readable or writable.", "#1971c2", "#4dabf7"],
  signalSource: ["Signal source", "The process received a signal, for example SIGTERM.", "#c2255c", "#f783ac"],
  processSource: ["Process source", "A child process ended.", "#862e9c", "#cc5de8"],
  socketSource: ["Socket source", "A connection arrived, or an attempt to connect ended.", "#0b7285", "#3bc9db"],
  port: ["Port", "A message from another thread.", "#5c7c0d", "#a9e34b"],
  messagePort: ["Message port", "A message from another process.", "#087f5b", "#38d9a9"],
  wallTimer: ["Wall timer", "Code that asked to be called at a date of the wall clock.", "#ae3ec9", "#da77f2"],
  clockChange: ["Clock change", "The wall clock was set.", "#66a80f", "#c0eb75"],
  perform: ["Perform", "A closure that was handed to the loop with perform.", "#a65f00", "#ffd43b"],
  block: ["Block", "A closure that was handed to the loop with performBlock.", "#8a5a3b", "#d9a47a"],
  job: ["Task job", "A piece of a Swift task, or of an actor that lives on this loop.", "#3b5bdb", "#91a7ff"],
  mainQueue: ["Main queue", "A block of the main dispatch queue.", "#9c36b5", "#e599f7"],
  hostedLibrary: ["C library", "Callbacks of a C library that shares the loop.", "#495057", "#ced4da"],
  invalidation: ["Invalidation", "The last call to an item that has ended.", "#c92a2a", "#ff8787"],
});
const kindOf = name => kinds[name] || [name, "", "#495057", "#ced4da"];
const isCallout = name => !["run", "pass", "sleep", "wakeUp"].includes(name);

const groups = [];
for (let i = 0; i < data.groups.length; i += 5) {
  const [kind, mode, depth, label, site] = data.groups.slice(i, i + 5);
  groups.push({ kind: data.kinds[kind], mode: text(mode), depth, label: text(label), site: text(site),
    isCallout: isCallout(data.kinds[kind]) });
}
// A place without its module: the name of the file and the line.
const title = group => group.label || group.site.slice(group.site.lastIndexOf("/") + 1) || kindOf(group.kind)[0];

// One loop: arrays with an element for each event, by start; a parent comes before its children.
// Figures begin at `since`: of what was before, some events were overwritten.
function makeLoop({ name, overwritten, since, events }, number) {
  const count = events.length / 3, open = [], used = new Map();
  const loop = { name, number, overwritten, count, start: new Float64Array(count), end: new Float64Array(count),
    group: new Int32Array(count), parent: new Int32Array(count), row: new Int32Array(count), own: new Float64Array(count) };
  let time = 0;
  for (let i = 0; i < count; i++) {
    const group = groups[events[3 * i]], length = events[3 * i + 2];
    time += events[3 * i + 1];
    while (open.length && loop.end[open.at(-1)] <= time) open.pop();
    const parent = open.length ? open.at(-1) : -1;
    loop.group[i] = events[3 * i];
    loop.start[i] = time;
    loop.end[i] = time + length;
    loop.parent[i] = parent;
    loop.own[i] = Math.max(0, loop.end[i] - Math.max(time, since));
    if (parent >= 0) loop.own[parent] -= loop.own[i];
    // A row for the runs of each depth, one for their passes, and one for sleeps and callouts. A callout in a callout is below it.
    const depth = Math.min(Math.max(group.depth, 1), 1e6) - 1;
    const row = 3 * depth + (group.kind === "run" ? 0 : group.kind === "pass" ? 1 : 2);
    if (group.kind === "wakeUp") {
      loop.row[i] = row;
    } else {
      loop.row[i] = parent < 0 ? row : Math.max(row, loop.row[parent] + 1);
      open.push(i);
    }
    used.set(loop.row[i], (used.get(loop.row[i]) || 0) + 1);
  }
  // Only rows that something is in. Nothing useful is nested deeper than the last one.
  const order = new Map([...used.keys()].sort((a, b) => a - b).map((row, i) => [row, Math.min(i, 59)]));
  loop.rows = Array.from({ length: Math.min(order.size, 60) }, () => []);
  for (let i = 0; i < count; i++) loop.rows[loop.row[i] = order.get(loop.row[i])].push(i);
  loop.rows = loop.rows.map(row => Int32Array.from(row));
  loop.first = count ? Math.max(loop.start[0], since) : 0;
  loop.last = loop.end.reduce((last, end) => Math.max(last, end), 0);
  return loop;
}
const loops = data.loops.map(makeLoop);
const total = Math.max(1000, ...loops.map(loop => loop.last));
const eventCount = loops.reduce((sum, loop) => sum + loop.count, 0);
const groupOf = (loop, event) => groups[loop.group[event]];

// Arrows by the events at their ends: key(loop, event) -> arrows.
const arrowsFrom = new Map(), arrowsTo = new Map(), key = (loop, event) => loop * 0x8000000 + event;
for (let i = 0; i < data.arrows.length; i += 5) {
  const [fromLoop, from, at, toLoop, to] = data.arrows.slice(i, i + 5);
  const arrow = { from: { loop: loops[fromLoop], event: from }, at, to: { loop: loops[toLoop], event: to } };
  for (const [map, end] of [[arrowsFrom, arrow.from], [arrowsTo, arrow.to]]) {
    const place = key(end.loop.number, end.event);
    if (!map.has(place)) map.set(place, []);
    map.get(place).push(arrow);
  }
}
