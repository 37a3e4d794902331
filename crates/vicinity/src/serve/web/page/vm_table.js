// The table of VMs, with a chart of the last minute in each cell that has one.

import { bytes, count, h, nameElement, path, percent, setHidden, setText } from "./format.js";

const SPARK = { width: 72, height: 20 };
export const SPARK_SECONDS = 60;

const element = (id) => document.getElementById(id);

const COLUMNS = [
  { key: "vm", title: "VM" },
  { key: "use", title: "Use %", text: (row) => percent(row.use), top: 1 },
  { key: "wait", title: "Wait %", text: (row) => percent(row.wait), top: 0.2, isBad: true },
  { key: "bytes", title: "Bytes/s", text: (row) => bytes(row.bytes), top: 0 },
  { key: "drops", title: "Drops/s", text: (row) => count(row.drops), top: 0, isBad: true },
  { key: "memory", title: "Memory", text: (row) => (row.memory == null ? "-" : bytes(row.memory)) },
  { key: "state", title: "Port", text: (row) => [...new Set(row.states)].join(", ") || "none" },
];

const ORDER_SECONDS = 5;
// Charts are drawn in every fifth interval, a fifth of the rows in each: a chart costs more than the texts of its row.
const CHART_TURNS = 5;
// For people who want less motion.
const STILL_TURNS = 10;

const body = element("vm-table").tBodies[0];
const table = { all: [], rows: new Map(), visible: new Set(), observer: null, at: 0, ordered: 0, turn: 0, sort: "wait", down: true, filter: "" };
const still = window.matchMedia("(prefers-reduced-motion: reduce)");
const narrow = window.matchMedia("(max-width: 40rem)");

// Makes the head of the table, and connects the filter. `open` shows a VM, `points` returns its points.
export function start(open, points) {
  Object.assign(table, { open, points });
  const head = element("vm-table").tHead.rows[0];
  for (const { key, title } of COLUMNS) {
    const button = h("button", { type: "button" }, title);
    button.addEventListener("click", () => {
      if (table.sort === key) table.down = !table.down;
      else [table.sort, table.down] = [key, key !== "vm" && key !== "state"];
      arrange();
      updateRows();
    });
    head.append(h("th", { scope: "col", role: "columnheader", className: key === "vm" ? "" : "figure" }, button));
  }
  table.observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) table.visible.add(entry.target);
      else table.visible.delete(entry.target);
    }
    updateRows();
  });
  element("filter").addEventListener("input", (event) => {
    table.filter = event.target.value.toLowerCase();
    arrange();
    updateRows();
  });
}

function makeRow(vm) {
  const button = h("button", { type: "button", className: "who" }, nameElement(vm));
  button.addEventListener("click", () => table.open(vm));
  const row = h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }, button));
  const made = { row, cells: [], isDrawn: false };
  for (const column of COLUMNS.slice(1)) {
    const value = h("span", {});
    const line = column.top === undefined ? null : chartElement(column);
    row.append(h("td", { role: "cell", className: "figure" }, line?.parentElement, value));
    made.cells.push({ text: column.text, value, line });
  }
  table.observer.observe(row);
  return made;
}

// Makes a chart, and returns its line. The charts are SVG, because the browser makes a layer of each canvas.
function chartElement({ title, isBad }) {
  const [svg, line] = ["svg", "path"].map((name) => document.createElementNS("http://www.w3.org/2000/svg", name));
  const attributes = { ...SPARK, class: isBad ? "chart bad" : "chart", role: "img", "aria-label": `${title}, the last minute` };
  for (const [key, value] of Object.entries(attributes)) svg.setAttribute(key, value);
  svg.append(line);
  return line;
}

// Takes the figures of all VMs at a time.
export function update(all, at) {
  const isOther = table.all.length !== all.length;
  Object.assign(table, { all, at, turn: table.turn + 1 });
  const known = new Set(all.map((row) => row.vm));
  for (const [vm, { row }] of table.rows) {
    if (!known.has(vm)) {
      table.observer.unobserve(row);
      table.visible.delete(row);
      table.rows.delete(vm);
      row.remove();
    }
  }
  for (const figures of all) {
    if (!table.rows.has(figures.vm)) table.rows.set(figures.vm, makeRow(figures.vm));
    table.rows.get(figures.vm).figures = figures;
  }
  // Rows do not move while somebody points at them, except on request, and not each second: a move lays the whole table
  // out again.
  const isDue = Math.abs(at - table.ordered) >= ORDER_SECONDS && !body.matches(":hover, :focus-within");
  if (isDue || isOther) arrange();
  updateRows();
  setHidden(element("no-vms"), all.length > 0);
  setHidden(element("vm-table"), all.length === 0);
}

// Puts the rows into their order.
function arrange() {
  const { all, sort, down, filter } = table;
  table.ordered = table.at;
  const value = (row) => (sort === "vm" ? row.vm : sort === "state" ? row.states.join() : row[sort] ?? -1);
  const compare = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0);
  const sorted = [...all].sort((a, b) => (down ? compare(b, a) : compare(a, b)) || (a.vm < b.vm ? -1 : 1));
  const rows = sorted.filter((row) => row.vm.toLowerCase().includes(filter)).map((row) => table.rows.get(row.vm).row);
  const there = body.children;
  if (rows.length !== there.length || rows.some((row, place) => there[place] !== row)) body.replaceChildren(...rows);
  setText(element("vm-count"), filter ? `${rows.length} of ${all.length}` : String(all.length));
  [...element("vm-table").tHead.rows[0].cells].forEach((cell, place) => {
    cell.setAttribute("aria-sort", COLUMNS[place].key === sort ? (down ? "descending" : "ascending") : "none");
  });
}

// Shows the figures of the rows on the screen.
function updateRows() {
  const turns = still.matches ? STILL_TURNS : CHART_TURNS;
  let place = 0;
  for (const made of table.rows.values()) {
    place += 1;
    if (!table.visible.has(made.row)) {
      made.isDrawn = false;
      continue;
    }
    const { row, figures, cells } = made;
    row.classList.toggle("warm", figures.wait >= 0.05 && figures.wait < 0.2);
    row.classList.toggle("hot", figures.wait >= 0.2);
    for (const { text, value } of cells) setText(value, text(figures));
    if (narrow.matches || (made.isDrawn && (table.turn + place) % turns !== 0)) continue;
    made.isDrawn = drawCharts(figures.vm, cells);
  }
}

// Returns whether there are lines: a chart of one point has none, and does not wait for its turn to have one.
function drawCharts(vm, cells) {
  const { at } = table;
  const points = table.points(vm).filter((point) => point.at >= at - SPARK_SECONDS);
  cells.forEach(({ line }, place) => {
    if (!line) return;
    const { key, top } = COLUMNS[place + 1];
    const [drawn] = path(points.map((point) => [point.at, point[key]]), { ...SPARK, from: at - SPARK_SECONDS, to: at, top });
    line.setAttribute("d", drawn);
  });
  return points.length > 1;
}
