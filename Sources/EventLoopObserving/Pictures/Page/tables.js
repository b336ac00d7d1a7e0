// The sixth part of the page's script: the details of an event, the tables, and the legend. Text is put into the page with `textContent`
// (`append` of a string does the same), so labels cannot become markup. Each is isolated, so that it cannot turn the direction of its
// neighbors.
"use strict";

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}
const isolated = text => make("bdi", "", text);
const isShort = text => text.length <= 2000 ? text : text.slice(0, 2000) + "…";
function chip(name) {
  const mark = make("i", "chip");
  mark.dataset.kind = name;
  return mark;
}
// What is called, where it was made, and on which loop it was called.
function what(group, loop) {
  const element = make("div", "what", make("div", "", chip(group.kind), make("b", "", isolated(isShort(title(group))))));
  const rest = [kindOf(group.kind)[0]];
  if (group.site && group.site !== title(group)) rest.push(group.site);
  if (loop && loops.length > 1) rest.push(loop.name);
  element.append(make("div", "quiet", isolated(isShort(rest.join(" · ")))));
  return element;
}
function button(text, label, action) {
  const element = make("button", "go", text);
  element.type = "button";
  element.setAttribute("aria-label", label);
  element.addEventListener("click", action);
  return element;
}
function bar(share, color) {
  const fill = make("span", "fill"), element = make("span", "bar", fill);
  fill.style.width = Math.max(share > 0 ? 0.5 : 0, Math.min(100, 100 * share)) + "%";
  if (color) fill.dataset.kind = color;
  return element;
}
// Scrolls to the timeline and shows the event.
function visit(loop, event) {
  select({ loop, event }, true);
  find("timeline").scrollIntoView({ block: "nearest" });
}
function table(place, titles, rows) {
  const head = make("tr", "", ...titles.map(title => make("th", "", title)));
  const body = rows.map(cells => make("tr", "", ...cells.map(cell => make("td", "", cell))));
  find(place).replaceChildren(make("thead", "", head), make("tbody", "", ...body));
}

function showTip(place, x, y) {
  const tip = find("tip");
  tip.hidden = !place;
  if (!place) return;
  const { loop, event } = place, group = groupOf(loop, event), length = loop.end[event] - loop.start[event];
  const time = group.kind === "wakeUp" ? moment(loop.start[event], 1e3) : duration(length);
  tip.replaceChildren(make("b", "", isolated(title(group).slice(0, 200))),
    make("div", "", [kindOf(group.kind)[0], time].join(", ")), ...group.label && group.site ? [make("div", "", group.site)] : []);
  tip.style.left = Math.max(4, Math.min(innerWidth - tip.offsetWidth - 8, x + 14)) + "px";
  tip.style.top = (y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18) + "px";
}

function showDetails() {
  const place = state.selected, panel = find("details");
  if (!place) return panel.replaceChildren(make("p", "quiet", panel.dataset.hint));
  const { loop, event } = place, group = groupOf(loop, event), length = loop.end[event] - loop.start[event];
  const rows = [["At", moment(loop.start[event], Math.max(1, Math.min(1e5, length / 10)))]];
  if (group.kind !== "wakeUp") rows.push(["Took", duration(length)]);
  if (loop.start[event] >= loop.first && length - loop.own[event] >= 1) rows.push(["Of it itself", `${duration(loop.own[event])}, without what is nested in it`]);
  if (loops.length > 1) rows.push(["Loop", loop.name]);
  rows.push(["Mode", group.mode], ["Depth", group.depth === 1 ? "outermost run" : `nested run, depth ${group.depth}`]);
  const links = [];
  const link = (verb, end) => links.push(button(`${verb} ${title(groupOf(end.loop, end.event)).slice(0, 80)}`,
    "Show what " + verb.toLowerCase(), () => select(end, true)));
  for (const arrow of (arrowsTo.get(key(loop.number, event)) || []).slice(0, 8)) link("← Came from", arrow.from);
  for (const arrow of (arrowsFrom.get(key(loop.number, event)) || []).slice(0, 8)) link("→ Gave work to", arrow.to);
  panel.replaceChildren(what(group), make("dl", "", ...rows.map(([name, value]) =>
    make("div", "", make("dt", "", name), make("dd", "", isolated(isShort(value)))))), make("p", "quiet", kindOf(group.kind)[1]),
    make("p", "links", button("Zoom to it", "Zoom to the event", () => select(place, true)), ...links));
}

function showFigures() {
  const chosen = find("which").value === "" ? loops : [loops[find("which").value]], all = figures(chosen);
  const share = value => value / Math.max(1, all.span), longest = all.slowest[0], away = all.away[0];
  const tile = (name, value, note, action) => make("div", "tile", make("h3", "", name),
    action ? button(value, `${name}: ${value}. Show it`, action) : make("b", "", value), make("p", "quiet", note));
  find("tiles").replaceChildren(
    tile("Asleep", percent(share(all.asleep)), "of the time. A loop that sleeps is ready to answer."),
    tile("Callouts", whole.format(all.callouts), `in ${duration(Math.max(0, ...chosen.map(loop => loop.last)) -
      Math.min(...chosen.map(loop => loop.first)))}. Code that the loop called.`),
    tile("Slowest callout", longest ? duration(longest.length) : "–",
      longest ? title(groupOf(longest.loop, longest.event)).slice(0, 80) : "No code was called.",
      longest && (() => visit(longest.loop, longest.event))),
    tile("Longest without the kernel", away ? duration(away.end - away.start) : "–",
      away ? "Whatever became ready meanwhile waited that long." : "It never worked.", away && (() => visitAbsence(away))));
  table("slowest", ["Took", "What", "When"], all.slowest.map(({ loop, event, length }) => {
    const group = groupOf(loop, event);
    return [button(duration(length), `${duration(length)}: ${title(group).slice(0, 80)}. Show it`, () => visit(loop, event)),
      what(group, loop), moment(loop.start[event], 1e5)];
  }));
  showKinds(all, share);
  showPlaces(all, share);
  showAway(all);
  for (const name of ["slowest", "places", "away"]) find(name + "-none").hidden = find(name).tBodies[0]?.rows.length > 0;
  return all;
}

function showKinds(all, share) {
  const rows = all.byKind.filter(([, entry]) => entry.count).map(([name, entry]) => [
    name === "loop" ? "The loop itself" : kindOf(name)[0], name === "loop" ? "pass" : name, entry.own, entry.count]);
  const outside = all.span - all.inRuns;
  if (outside > all.span / 1000) rows.push(["Outside of runs", "", outside, 0]);
  table("kinds", ["What", "Share", "Time", "Times"], rows.map(([name, kind, own, count]) => [
    make("div", "", ...kind ? [chip(kind)] : [], name), make("div", "share", bar(share(own), kind), percent(share(own))),
    duration(own), count ? whole.format(count) : ""]));
}

function showPlaces(all, share) {
  const rows = all.byPlace.slice(0, 15), rest = all.byPlace.slice(15), largest = Math.max(1, ...rows.map(row => row.own));
  table("places", ["Time", "Where", "Share", "Times", "Longest"], rows.map(row => {
    const mark = button(duration(row.own), `${duration(row.own)}: ${title(row.group).slice(0, 80)}. Highlight it`, () => highlight(row));
    mark.setAttribute("aria-pressed", "false");
    return [mark, what(row.group), make("div", "share", bar(row.own / largest, row.group.kind), percent(share(row.own))),
      whole.format(row.count), button(duration(row.longest), "Show the longest", () => visit(row.loop, row.event))];
  }));
  find("places-rest").textContent = rest.length
    ? `${plural(rest.length, "more place takes", "more places take")} ${duration(rest.reduce((sum, row) => sum + row.own, 0))}.` : "";
}

// Dims everything but the callouts of one place; a second click ends it.
function highlight(row) {
  const { kind, label, site } = row.group, pressed = document.activeElement;
  const isOn = pressed?.getAttribute("aria-pressed") === "true";
  for (const other of find("places").querySelectorAll("[aria-pressed]")) other.setAttribute("aria-pressed", "false");
  pressed?.setAttribute("aria-pressed", String(!isOn));
  state.highlighted = isOn ? null : group => group.kind === kind && group.label === label && group.site === site;
  if (!isOn) find("timeline").scrollIntoView({ block: "nearest" });
  plan();
}

function visitAbsence(absence) {
  zoomTo(absence.start, absence.end);
  const event = mainCallout(absence);
  select(event < 0 ? null : { loop: absence.loop, event });
  find("timeline").scrollIntoView({ block: "nearest" });
}

function showAway(all) {
  const limits = [1e4, 1e5, 1e6, 1e7, 1e8, 1e9, Infinity];
  const classes = limits.map((limit, i) => ({ from: i ? limits[i - 1] : 0, limit, count: 0, time: 0 }));
  for (const { start, end } of all.away) {
    const found = classes.find(({ limit }) => end - start < limit);
    found.count++;
    found.time += end - start;
  }
  const filled = classes.map(entry => entry.count > 0);
  const shown = all.away.length ? classes.slice(filled.indexOf(true), filled.lastIndexOf(true) + 1) : [];
  table("distribution", ["Away for", "Share", "Times", "Together"], shown.map(({ from, limit, count, time }) => [
    limit === Infinity ? duration(from) + " and more" : from ? `${duration(from)} – ${duration(limit)}` : "less than " + duration(limit),
    make("div", "share", bar(count / all.away.length), percent(count / all.away.length)), whole.format(count), duration(time)]));
  table("away", ["Away for", "Mostly in", "When"], all.away.slice(0, 8).map(absence => {
    const event = mainCallout(absence), length = duration(absence.end - absence.start);
    return [button(length, `${length}. Show it`, () => visitAbsence(absence)),
      event < 0 ? "the loop itself" : what(groupOf(absence.loop, event), absence.loop), moment(absence.start, 1e5)];
  }));
}

function showLegend() {
  const present = new Set(groups.map(group => group.kind));
  const entries = data.kinds.filter(name => isCallout(name) ? present.has(name) : present.has(name) && name === "wakeUp");
  find("legend").replaceChildren(...entries.map(name =>
    make("div", "", make("dt", "", chip(name), kindOf(name)[0]), make("dd", "", kindOf(name)[1]))));
}

function showColors() {
  readPalette();
  find("colors").textContent = data.kinds.map(name =>
    `[data-kind="${name}"]{background:${palette["kind " + name]}}`).join("\n");
}
