// The fourth part of the page's script: draws the marks and arrows above the timeline, and the overview.
"use strict";

// What changes with the pointer: the marks around the hovered and the selected event, and their arrows.
function drawOverlay() {
  const context = prepare(overlay, state.width, height);
  for (const [place, weight] of [[state.hovered, 1.5], [state.selected, 2.5]]) {
    if (!place) continue;
    const { loop, event } = place, y = rowTop(loop, loop.row[event]);
    const left = Math.max(-4, xOf(loop.start[event])), right = Math.min(state.width + 4, xOf(loop.end[event]));
    context.strokeStyle = palette.ink;
    context.lineWidth = weight;
    context.strokeRect(left - 1, y, Math.max(3, right - left + 1), rowHeight);
    const place2 = key(loop.number, event);
    for (const arrow of [...(arrowsTo.get(place2) || []), ...(arrowsFrom.get(place2) || [])].slice(0, 500)) drawArrow(context, arrow);
  }
}

function drawArrow(context, { from, at, to }) {
  const x1 = xOf(at), y1 = rowTop(from.loop, from.loop.row[from.event]) + rowHeight / 2;
  const x2 = xOf(to.loop.start[to.event]), y2 = rowTop(to.loop, to.loop.row[to.event]) + rowHeight / 2;
  if (Math.max(x1, x2) < -1e4 || Math.min(x1, x2) > state.width + 1e4) return;
  const bend = Math.max(14, Math.min(80, Math.abs(x2 - x1) / 2));
  context.strokeStyle = context.fillStyle = palette.accent;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x1, y1);
  context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2 - 5, y2);
  context.stroke();
  context.beginPath();
  context.arc(x1, y1, 3, 0, 7);
  context.moveTo(x2, y2);
  context.lineTo(x2 - 8, y2 - 4);
  context.lineTo(x2 - 8, y2 + 4);
  context.fill();
}

// The whole recording, and which part of it the timeline shows: how much of each column the loops worked.
const overviewHeight = 44;
let bins = null;
function drawOverview() {
  const width = overview.clientWidth, context = prepare(overview, width, overviewHeight);
  if (!bins || bins.length !== Math.ceil(width)) {
    bins = new Float64Array(Math.ceil(width));
    for (const loop of loops) for (const { start, end } of loop.absences) {
      const from = start / total * width, to = end / total * width;
      for (let x = Math.floor(from); x < to && x < bins.length; x++) bins[x] += Math.min(to, x + 1) - Math.max(from, x);
    }
  }
  context.fillStyle = palette.band;
  context.fillRect(0, 0, width, overviewHeight);
  context.fillStyle = palette.accent;
  for (let x = 0; x < bins.length; x++) {
    const share = Math.min(1, bins[x] / Math.max(1, loops.length));
    if (share > 0) context.fillRect(x, overviewHeight - Math.max(2, share * (overviewHeight - 4)), 1, overviewHeight);
  }
  const left = view.from / total * width, right = view.to / total * width;
  context.globalAlpha = 0.6;
  context.fillStyle = palette.card;
  context.fillRect(0, 0, left, overviewHeight);
  context.fillRect(right, 0, width - right, overviewHeight);
  context.globalAlpha = 1;
  context.strokeStyle = palette.ink;
  context.lineWidth = 1.5;
  context.strokeRect(Math.max(1, left), 1, Math.max(3, Math.min(width - 1, right) - Math.max(1, left)), overviewHeight - 2);
}
