// The fifth part of the page's script: zoom, pan and selection by mouse, touch and keyboard.
"use strict";

let isDrawPlanned = false, isOverlayPlanned = false;
function plan() {
  if (isDrawPlanned) return;
  isDrawPlanned = true;
  requestAnimationFrame(() => { isDrawPlanned = false; draw(); });
}
function planOverlay() {
  if (isOverlayPlanned || isDrawPlanned) return;
  isOverlayPlanned = true;
  requestAnimationFrame(() => { isOverlayPlanned = false; drawOverlay(); });
}

// Shows a stretch of time; never less than 50 ns, never more than there is.
function show(from, to) {
  const length = Math.min(total, Math.max(50, to - from)), middle = (from + to) / 2;
  view.from = Math.max(0, Math.min(total - length, middle - length / 2));
  view.to = view.from + length;
  plan();
  remember();
}
function zoom(factor, time = (view.from + view.to) / 2) {
  show(time - (time - view.from) * factor, time + (view.to - time) * factor);
}
function pan(share) {
  const length = view.to - view.from;
  show(view.from + share * length, view.to + share * length);
}
// An event with as much around it that one sees where it belongs.
function zoomTo(from, to) { show(from - Math.max(20, to - from) * 0.6, to + Math.max(20, to - from) * 0.6); }

// The address names the view, so that it survives a reload and can be sent to someone.
let remembering = 0;
function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    const hash = view.from > 0 || view.to < total ? `#${Math.round(view.from)}-${Math.round(view.to)}` : "#";
    try { history.replaceState(null, "", hash); } catch { /* a page without an address */ }
  }, 300);
}
function followAddress() {
  const parts = /^#(\d+)-(\d+)$/.exec(location.hash);
  if (parts && Number(parts[2]) > Number(parts[1])) show(Number(parts[1]), Number(parts[2]));
}

// The event at a place of the picture; the longest one if several share the pixel. Small events have three pixels around them.
function eventAt(x, y) {
  for (const loop of loops) {
    const row = Math.floor((y - loop.top - headHeight) / rowHeight);
    if (row < 0 || row >= loop.rows.length || y >= loop.bottom) continue;
    const events = loop.rows[row], from = timeAt(x - 3), to = timeAt(x + 3), time = timeAt(x);
    let best = null, weight = -1;
    for (let i = firstInRow(loop, row, from); i < events.length && loop.start[events[i]] <= to; i++) {
      const event = events[i], isUnder = loop.start[event] <= time && time < loop.end[event];
      // A wake-up lies on a sleep, and would never be found under it.
      const isMark = groupOf(loop, event).kind === "wakeUp";
      const length = isMark ? Infinity : loop.end[event] - loop.start[event] + (isUnder ? to - from : 0);
      if (length > weight) [best, weight] = [{ loop, event }, length];
    }
    return best;
  }
  return null;
}
const same = (a, b) => a === b || (a && b && a.loop === b.loop && a.event === b.event);

function hover(place, x, y) {
  if (!same(place, state.hovered)) {
    state.hovered = place;
    planOverlay();
  }
  showTip(place, x, y);
}
function select(place, isZooming) {
  state.selected = place;
  showDetails();
  if (place) {
    const { loop, event } = place, start = loop.start[event], end = loop.end[event];
    if (isZooming) zoomTo(start, end);
    else if (end < view.from || start > view.to) show(start - (view.to - view.from) / 2, start + (view.to - view.from) / 2);
  }
  planOverlay();
}

// The next event in time on the same loop, its parent, or the first event in it.
function move(direction) {
  if (!state.selected) {
    const loop = loops.find(loop => loop.count);
    if (!loop) return;
    const found = loop.start.findIndex((start, i) => start >= view.from && groupOf(loop, i).isCallout);
    return select({ loop, event: Math.max(0, found) });
  }
  const { loop, event } = state.selected;
  let next = event;
  if (direction === "up") next = loop.parent[event];
  else if (direction === "down") next = event + 1 < loop.count && loop.parent[event + 1] === event ? event + 1 : -1;
  else {
    const events = loop.rows[loop.row[event]], i = events.indexOf(event) + (direction === "next" ? 1 : -1);
    next = i >= 0 && i < events.length ? events[i] : -1;
  }
  if (next >= 0) select({ loop, event: next });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const actions = {
    ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
    0: () => show(0, total), Home: () => show(0, view.to - view.from), End: () => show(total - (view.to - view.from), total),
    n: () => move("next"), p: () => move("previous"), ArrowUp: () => move("up"), ArrowDown: () => move("down"),
    Enter: () => select(state.selected, true), Escape: () => select(null),
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

// Mouse, pen and touch. One pointer pans, two pinch; a pointer that does not move selects.
function control(place) {
  const pointers = new Map();
  let moved = 0, distance = 0;
  const position = event => {
    const box = overlay.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [a, b] = [...pointers.values()];
    return { middle: (a[0] + b[0]) / 2, distance: Math.max(10, Math.abs(a[0] - b[0])) };
  };
  place.addEventListener("pointerdown", event => {
    if (event.button > 0) return;
    pointers.set(event.pointerId, position(event));
    if (pointers.size === 1) moved = 0;
    if (pointers.size === 2) distance = spread().distance;
  });
  place.addEventListener("pointermove", event => {
    const [x, y] = position(event), last = pointers.get(event.pointerId);
    if (!last) return hover(event.pointerType === "touch" ? null : eventAt(x, y), event.clientX, event.clientY);
    const before = pointers.size === 2 ? spread() : null;
    pointers.set(event.pointerId, [x, y]);
    moved = Math.max(moved, pointers.size > 1 ? 100 : moved + Math.abs(x - last[0]));
    if (before) {
      const after = spread();
      zoom(before.distance / after.distance, timeAt(before.middle));
      pan((before.middle - after.middle) / state.width);
    } else if (moved > 4) {
      // Captured only now: a capture would take the click away from a double click.
      if (!place.hasPointerCapture(event.pointerId)) place.setPointerCapture(event.pointerId);
      hover(null);
      pan((last[0] - x) / state.width);
    }
  });
  const release = event => {
    const last = pointers.get(event.pointerId);
    pointers.delete(event.pointerId);
    if (last && event.type === "pointerup" && moved <= 4) select(eventAt(...position(event)));
  };
  for (const name of ["pointerup", "pointercancel"]) place.addEventListener(name, release);
  place.addEventListener("pointerleave", () => hover(null));
  place.addEventListener("dblclick", event => {
    const found = eventAt(...position(event));
    if (found) select(found, true); else zoom(0.25, timeAt(position(event)[0]));
  });
  // A page that catches every turn of the wheel cannot be scrolled: the wheel zooms with Ctrl, or once the timeline has been clicked.
  place.addEventListener("wheel", event => {
    const unit = event.deltaMode === 1 ? 30 : event.deltaMode === 2 ? 300 : 1;
    const [dx, dy] = event.shiftKey ? [event.deltaY || event.deltaX, 0] : [event.deltaX, event.deltaY];
    if (Math.abs(dx) > Math.abs(dy)) pan(dx * unit / state.width);
    else if (event.ctrlKey || event.metaKey || place.contains(document.activeElement)) {
      zoom(Math.exp(Math.max(-1, Math.min(1, dy * unit * (event.ctrlKey ? 0.01 : 0.002)))), timeAt(position(event)[0]));
    } else return;
    event.preventDefault();
  }, { passive: false });
  place.addEventListener("keydown", onKey);
}

// The overview: a click goes there, a drag moves along.
function controlOverview() {
  const go = event => {
    const box = overview.getBoundingClientRect(), time = (event.clientX - box.left) / box.width * total;
    show(time - (view.to - view.from) / 2, time + (view.to - view.from) / 2);
  };
  overview.addEventListener("pointerdown", event => {
    overview.setPointerCapture(event.pointerId);
    go(event);
  });
  overview.addEventListener("pointermove", event => { if (overview.hasPointerCapture(event.pointerId)) go(event); });
}
