// Formats figures as `vicinity top` does, and makes elements. All text is set as text, never as markup: names of VMs
// come from other programs.

import { list, number, records, string } from "./interval.js";

export { list, number, records, string };

// The page's words, for a translation.
export const T = {
  connecting: "Waiting for the first figures",
  unreadable: "The daemon sent figures that this page cannot show: reload the page.",
  lost: (at) => `Connection lost. Last figures: ${at}. Trying again.`,
  full: "Too many pages are open on this daemon. Trying again.",
  older: (version) => `The daemon has version ${version} of the figures, which this page does not know: reload the page.`,
  since: (at, ago) => `since ${at} (${ago})`,
  copy: "Copy",
  copied: "Copied",
  others: "others",
  cell: (from, to) => `${from} to ${to}`,
  nothing: "nothing",
  uplink: "uplink",
};

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export function bytes(value) {
  value = Math.max(0, number(value));
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function count(value) {
  value = number(value);
  if (value === 0) return "0";
  if (value < 100) return value.toFixed(1);
  if (value < 1e5) return value.toFixed(0);
  if (value < 1e7) return `${(value / 1e3).toFixed(0)} k`;
  return `${(value / 1e6).toFixed(0)} M`;
}

export const percent = (value) => (number(value) * 100).toFixed(1);

export function clock(at) {
  const date = new Date(number(at) * 1000);
  if (Number.isNaN(date.getTime())) return "?";
  const parts = [date.getHours(), date.getMinutes(), date.getSeconds()];
  return parts.map((part) => String(part).padStart(2, "0")).join(":");
}

export function ago(seconds) {
  seconds = Math.max(0, Math.round(number(seconds)));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

export function nanoseconds(value) {
  if (value == null) return "more";
  if (value < 1e3) return `${value} ns`;
  if (value < 1e6) return `${(value / 1e3).toFixed(1)} µs`;
  return `${(value / 1e6).toFixed(1)} ms`;
}

// Shows an empty name as something that one can see.
export const name = (text) => string(text) || "(no name)";

// Makes an element with properties, attributes (`aria-…`, `role`, `for`) and children; a string becomes text.
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (key.includes("-") || key === "role" || key === "scope" || key === "dir") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

// Sets a text only if it changed, in the node that is there: a new node costs twice as much.
export function setText(element, text) {
  const node = element.firstChild;
  if (node === null) element.textContent = text;
  else if (node.data !== text) node.data = text;
}

// Shows or hides an element only if that changes it.
export function setHidden(element, isHidden) {
  if (element.hidden !== isHidden) element.hidden = isHidden;
}

// A name in an element of its own direction, so that a name with right-to-left letters changes no other text.
export const nameElement = (text) => h("bdi", { className: "name", title: name(text) }, name(text));

// Fills a table of few rows. Elements that are there are used again.
export function fillTable(table, titles, rows) {
  const head = table.tHead.rows[0];
  if (head.cells.length === 0) {
    head.append(...titles.map((title, place) => h("th", { scope: "col", className: place ? "figure" : "" }, title)));
  }
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  rows.forEach((row, at) => {
    if (!body.rows[at]) {
      const cells = titles.map((_, place) => (place ? h("td", { className: "figure" }) : h("th", { scope: "row" }, nameElement(""))));
      body.append(h("tr", {}, ...cells));
    }
    row.forEach((value, place) => {
      const cell = body.rows[at].cells[place];
      if (place > 0) setText(cell, value);
      else if (cell.firstChild.textContent !== value) cell.replaceChildren(nameElement(value));
    });
  });
}

// Prepares a canvas for the screen's resolution, and returns its context and size in CSS pixels.
export function context(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const drawing = canvas.getContext("2d");
  drawing.setTransform(scale, 0, 0, scale, 0, 0);
  drawing.clearRect(0, 0, width, height);
  return drawing;
}

let colours = new Map();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (colours = new Map()));

// Returns a colour of the style sheet.
export function colour(name) {
  if (!colours.has(name)) {
    colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  }
  return colours.get(name);
}

// Returns the path of points of [time, value] from `from` to `to`, as in SVG, and the value at its top: `top` or the
// greatest value.
export function path(points, { width, height, from, to, top = 0 }) {
  const greatest = points.reduce((most, [, value]) => Math.max(most, number(value)), top);
  if (points.length === 0 || greatest <= 0 || to <= from) return ["", greatest];
  const x = (at) => (((at - from) / (to - from)) * width).toFixed(1);
  const y = (value) => (height - 1 - (number(value) / greatest) * (height - 2)).toFixed(1);
  // A gap of some seconds is no line.
  const verb = (place) => (place === 0 || points[place][0] - points[place - 1][0] > 5 ? "M" : "L");
  return [points.map(([at, value], place) => `${verb(place)}${x(at)} ${y(value)}`).join(""), greatest];
}

// Draws such a path. Returns the value at its top.
export function chart(canvas, points, options) {
  const drawing = context(canvas, options.width, options.height);
  const [line, greatest] = path(points, options);
  drawing.strokeStyle = colour(options.line ?? "--accent");
  drawing.lineWidth = 1.5;
  drawing.stroke(new Path2D(line));
  return greatest;
}
