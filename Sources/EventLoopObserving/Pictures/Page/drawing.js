// The third part of the page's script: draws the timeline.
"use strict";

const find = id => document.getElementById(id);
const rowHeight = 20, headHeight = 24, axisHeight = 22, gap = 10;
const canvas = find("picture"), overlay = find("overlay"), overview = find("overview");
const dark = matchMedia("(prefers-color-scheme: dark)");
const view = { from: 0, to: total };
// `drawn` counts rectangles.
const state = { hovered: null, selected: null, highlighted: null, width: 0, drawn: 0 };

let nextTop = axisHeight;
for (const loop of loops) {
  loop.top = nextTop;
  loop.bottom = nextTop + headHeight + Math.max(1, loop.rows.length) * rowHeight;
  nextTop = loop.bottom + gap;
}
const height = nextTop;

let palette = {};
function readPalette() {
  const style = getComputedStyle(document.documentElement), color = name => style.getPropertyValue("--" + name).trim();
  palette = Object.fromEntries(["ink", "quiet", "rule", "band", "card", "accent", "run", "pass", "sleep", "onspan"].map(
    name => [name, color(name)]));
  for (const name of data.kinds) palette["kind " + name] = kindOf(name)[dark.matches ? 3 : 2] || palette[name] || palette.accent;
  for (const group of groups) group.color = palette["kind " + group.kind];
}

function prepare(canvas, width, height) {
  const scale = Math.min(3, devicePixelRatio || 1), context = canvas.getContext("2d");
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = height + "px";
  }
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  return context;
}
const font = "12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
const xOf = time => (time - view.from) / (view.to - view.from) * state.width;
const timeAt = x => view.from + x / state.width * (view.to - view.from);
const rowTop = (loop, row) => loop.top + headHeight + row * rowHeight;

// The first event of a row that has not ended at the time. Events of a row do not overlap, so both ends are sorted.
function firstInRow(loop, row, time) {
  const events = loop.rows[row];
  let low = 0, high = events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (loop.end[events[middle]] >= time) high = middle; else low = middle + 1;
  }
  return low;
}

function steps(width) {
  const rough = (view.to - view.from) * 110 / Math.max(width, 1), size = 10 ** Math.floor(Math.log10(rough));
  return Math.max(1, [1, 2, 5, 10].map(n => n * size).find(step => step >= rough));
}

function draw() {
  const began = performance.now(), width = state.width = canvas.clientWidth;
  if (!width) return;
  const context = prepare(canvas, width, height), step = steps(width);
  state.drawn = 0;
  context.font = font;
  for (const loop of loops) {
    context.fillStyle = palette.band;
    context.fillRect(0, loop.top + headHeight, width, loop.bottom - loop.top - headHeight);
  }
  // The axis.
  context.fillStyle = palette.quiet;
  context.strokeStyle = palette.rule;
  context.lineWidth = 1;
  context.beginPath();
  for (let i = Math.ceil(view.from / step); i * step <= view.to; i++) {
    const x = Math.round(xOf(i * step)) + 0.5, label = moment(i * step, step);
    context.moveTo(x, axisHeight - 5);
    context.lineTo(x, height);
    if (x + context.measureText(label).width + 4 < width) context.fillText(label, x + 4, axisHeight / 2);
  }
  context.stroke();
  for (const loop of loops) {
    drawName(context, loop, width);
    for (let row = 0; row < loop.rows.length; row++) drawRow(context, loop, row, width);
  }
  drawOverlay();
  drawOverview();
  // For tests.
  canvas.dataset.drawn = state.drawn;
  Object.assign(canvas.dataset, { from: view.from, to: view.to, milliseconds: Math.round(performance.now() - began) });
}

function drawName(context, loop, width) {
  const y = loop.top + headHeight / 2, asleep = loop.asleep / Math.max(1, loop.last - loop.first);
  context.font = "600 " + font;
  context.fillStyle = palette.ink;
  const name = fitted(context, loop.name, width * 0.6);
  context.fillText(name, 4, y);
  const end = 4 + context.measureText(name).width;
  context.font = font;
  context.fillStyle = palette.quiet;
  const note = loop.count ? `${plural(loop.count, "event", "events")}, asleep ${percent(asleep)} of the time` : "nothing recorded";
  if (end + 12 + context.measureText(note).width < width) context.fillText(note, end + 12, y);
}

// The text, or as much of it as the width has room for.
function fitted(context, text, width) {
  // No screen shows more; labels may be megabytes.
  const shown = text.length > 300 ? text.slice(0, 300) : text;
  if (shown === text && context.measureText(text).width <= width) return text;
  let low = 0, high = shown.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(shown.slice(0, middle) + "…").width <= width) low = middle; else high = middle - 1;
  }
  return low < 2 ? "" : shown.slice(0, low) + "…";
}

// Events that are narrower than a pixel are drawn as one column: the loop's own spans the paler the less of it they fill, and above
// them, from the bottom, the share of callouts in the color of the longest. So one look at each event bounds the work for a picture.
function drawRow(context, loop, row, width) {
  const events = loop.rows[row], y = rowTop(loop, row), perPixel = width / (view.to - view.from), marks = [];
  let column = -1, filled = 0, called = 0, longest = -1, back = "", color = "", dim = false;
  const flush = () => {
    if (column < 0) return;
    if (back) {
      context.globalAlpha = (dim ? 0.15 : 1) * Math.min(1, 0.4 + filled);
      context.fillStyle = back;
      context.fillRect(column, y + 1, 1, rowHeight - 2);
    }
    if (color) {
      const tall = back ? Math.max(3, Math.min(1, called / filled) * (rowHeight - 2)) : rowHeight - 2;
      context.globalAlpha = dim ? 0.15 : back ? 1 : Math.min(1, 0.5 + called);
      context.fillStyle = color;
      context.fillRect(column, y + rowHeight - 1 - tall, 1, tall);
    }
    context.globalAlpha = 1;
    state.drawn++;
    column = -1;
  };
  for (let i = firstInRow(loop, row, view.from); i < events.length && loop.start[events[i]] <= view.to; i++) {
    const event = events[i], group = groups[loop.group[event]], isDim = state.highlighted && !state.highlighted(group);
    const x = (loop.start[event] - view.from) * perPixel, wide = (loop.end[event] - loop.start[event]) * perPixel;
    if (group.kind === "wakeUp") {
      marks.push(x);
    } else if (wide >= 1) {
      flush();
      drawSpan(context, group, Math.max(x, -2), Math.min(x + wide, width + 2), y, isDim);
    } else {
      if (Math.floor(x) !== column) {
        flush();
        column = Math.floor(x);
        [filled, called, longest, back, color, dim] = [0, 0, -1, "", "", true];
      }
      filled += Math.max(wide, 1e-9);
      // A highlighted callout wins over all others.
      const weight = wide + (state.highlighted && !isDim ? 2 : 0);
      if (!isDim) dim = false;
      if (!group.isCallout) back = group.color;
      else {
        called += wide;
        if (weight > longest) [longest, color] = [weight, group.color];
      }
    }
  }
  flush();
  drawWakeUps(context, marks, y);
}

function drawSpan(context, group, from, to, y, isDim) {
  const left = Math.round(from), width = Math.max(1, Math.round(to) - left - (to - from > 3 ? 1 : 0));
  state.drawn++;
  if (isDim) context.globalAlpha = 0.15;
  context.fillStyle = group.color;
  context.fillRect(left, y + 1, width, rowHeight - 2);
  const start = Math.max(left, 0), room = Math.min(left + width, state.width) - start - 8;
  if (room > 24 && !isDim) {
    const label = fitted(context, group.isCallout ? title(group) : kindOf(group.kind)[0] +
      (group.kind === "run" ? " in mode " + group.mode : ""), room);
    context.fillStyle = group.isCallout ? palette.onspan : palette.ink;
    context.fillText(label, start + 4, y + rowHeight / 2 + 0.5);
  }
  context.globalAlpha = 1;
}

// Triangles while there is room for them, otherwise ticks.
function drawWakeUps(context, marks, y) {
  const isDense = marks.length > state.width / 12;
  context.fillStyle = palette.accent;
  let last = -Infinity;
  for (const x of marks) {
    if (isDense && x - last < 2) continue;
    last = x;
    state.drawn++;
    if (isDense) {
      context.fillRect(Math.floor(x), y + 1, 1, 3);
      continue;
    }
    context.beginPath();
    context.moveTo(x, y + 8);
    context.lineTo(x - 4, y + 1);
    context.lineTo(x + 4, y + 1);
    context.fill();
  }
}
