// The matrix of who sends to whom: a heat map on a canvas, and the busiest pairs in a table.

import { T, bytes, colour, context, count, fillTable, list, name, number, records, setHidden, setText, string } from "./format.js";

const STEPS = 8;
// A cell of step n has at least 10^(n + 3) bytes a second, up to the last step.
const FIRST_POWER = 3;
// A row has room for this many receivers; further ones are not known.
const ROOM = 64;
const PAIRS_SHOWN = 40;

const element = (id) => document.getElementById(id);

// The endpoints in their order, the cell that is chosen, and what is drawn.
const view = { order: [], wanted: 32, chosen: null, rows: [], cells: new Map(), size: 0, edge: 0, full: new Set() };
let drawn = { pairs: [], uplinks: [] };

export const step = (rate) => {
  if (!(rate > 0)) return -1;
  return Math.min(STEPS - 1, Math.max(0, Math.floor(Math.log10(rate)) - FIRST_POWER + 1));
};

// Sums pairs by endpoint, so that VMs on several networks and channels have one row.
function sums(pairs) {
  const cells = new Map();
  const totals = new Map();
  const peers = new Map();
  for (const pair of pairs) {
    const [from, to] = [string(pair.from), string(pair.to)];
    const row = cells.get(from) ?? cells.set(from, new Map()).get(from);
    const cell = row.get(to) ?? row.set(to, { bytes: 0, frames: 0, channels: new Set() }).get(to);
    cell.bytes += number(pair.bytes);
    cell.frames += number(pair.frames);
    cell.channels.add(string(pair.channel) || "switch");
    for (const end of [from, to]) totals.set(end, (totals.get(end) ?? 0) + number(pair.bytes));
    if ((pair.channel ?? "switch") === "switch") peers.set(from, (peers.get(from) ?? 0) + 1);
  }
  const full = new Set([...peers].filter(([, number]) => number >= ROOM).map(([end]) => end));
  return { cells, totals, full };
}

// Orders endpoints so that those that talk to each other are neighbours: average linkage on bytes, by the
// nearest-neighbour chain (Murtagh 1983), which needs n² steps.
export function cluster(ends, rate) {
  const n = ends.length;
  if (n < 3) return ends;
  const near = new Float64Array(n * n);
  for (let i = 0; i < n; i += 1) {
    for (let j = 0; j < n; j += 1) if (i !== j) near[i * n + j] = Math.log1p(rate(ends[i], ends[j]) + rate(ends[j], ends[i]));
  }
  const members = ends.map((_, place) => [place]);
  const alive = new Set(ends.keys());
  const chain = [];
  while (alive.size > 1) {
    if (chain.length === 0) chain.push(alive.values().next().value);
    const last = chain[chain.length - 1];
    const before = chain[chain.length - 2];
    let best = before;
    let most = before === undefined ? -1 : near[last * n + before];
    for (const other of alive) {
      if (other !== last && near[last * n + other] > most) {
        most = near[last * n + other];
        best = other;
      }
    }
    if (best !== before) {
      chain.push(best);
      continue;
    }
    chain.length -= 2;
    const [a, b] = [members[last].length, members[best].length];
    for (const other of alive) {
      const mean = (a * near[last * n + other] + b * near[best * n + other]) / (a + b);
      near[last * n + other] = mean;
      near[other * n + last] = mean;
    }
    members[last] = members[last].concat(members[best]);
    alive.delete(best);
  }
  return members[alive.values().next().value].map((place) => ends[place]);
}

// Chooses the endpoints with the most bytes, and their order. Uplinks are last.
function order({ cells, totals }, uplinks) {
  const all = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a) || (a < b ? -1 : 1));
  const top = all.slice(0, view.wanted);
  const rate = (from, to) => cells.get(from)?.get(to)?.bytes ?? 0;
  const inside = cluster(top.filter((end) => !uplinks.has(end)).sort(), rate);
  view.order = [...inside, ...top.filter((end) => uplinks.has(end))];
}

// Returns the rows of the map: the chosen endpoints, and one for all others.
function rows(sum) {
  const known = new Set(view.order);
  const shown = view.order.filter((end) => sum.totals.has(end));
  const others = [...sum.totals.keys()].filter((end) => !known.has(end));
  if (others.length > 0) shown.push(null);
  const place = new Map(shown.map((end, index) => [end, index]));
  const cells = new Map();
  for (const [from, row] of sum.cells) {
    const i = place.get(from) ?? place.get(null);
    for (const [to, cell] of row) {
      const key = i * shown.length + (place.get(to) ?? place.get(null));
      const there = cells.get(key);
      if (!there) cells.set(key, { ...cell });
      else {
        there.bytes += cell.bytes;
        there.frames += cell.frames;
        there.channels = new Set([...there.channels, ...cell.channels]);
      }
    }
  }
  return { shown, cells };
}

const label = (end) => (end === null ? T.others : name(end));

// Draws the map. Returns the milliseconds that it took.
export function draw() {
  const started = performance.now();
  const canvas = element("matrix-canvas");
  const n = view.rows.length;
  const room = Math.max(160, canvas.parentElement.clientWidth);
  const labels = Math.min(120, Math.round(room * 0.22));
  const size = Math.max(1, Math.min(22, Math.floor((room - labels) / Math.max(n, 1))));
  const hasLabels = size >= 9;
  const edge = hasLabels ? labels : 0;
  Object.assign(view, { size, edge });
  const width = edge + size * n;
  const drawing = context(canvas, Math.max(width, 1), Math.max(edge + size * n, 1));
  drawing.fillStyle = colour("--heat-none");
  drawing.fillRect(edge, edge, size * n, size * n);
  const gap = size > 4 ? 1 : 0;
  const heat = Array.from({ length: STEPS }, (_, index) => colour(`--heat-${index}`));
  for (const [key, cell] of view.cells) {
    const at = step(cell.bytes);
    if (at < 0) continue;
    drawing.fillStyle = heat[at];
    drawing.fillRect(edge + (key % n) * size, edge + Math.floor(key / n) * size, size - gap, size - gap);
  }
  drawing.fillStyle = colour("--text");
  drawing.strokeStyle = colour("--text");
  drawing.font = `${Math.min(12, size + 1)}px system-ui, sans-serif`;
  view.rows.forEach((end, place) => {
    const middle = edge + place * size + size / 2;
    if (view.full.has(end)) {
      for (let x = edge; x < width; x += 6) {
        drawing.beginPath();
        drawing.moveTo(x, edge + (place + 1) * size - gap);
        drawing.lineTo(x + size, edge + place * size);
        drawing.globalAlpha = 0.3;
        drawing.stroke();
        drawing.globalAlpha = 1;
      }
    }
    if (!hasLabels) return;
    drawing.textBaseline = "middle";
    drawing.textAlign = "right";
    drawing.fillText(shorten(drawing, label(end), edge - 6), edge - 4, middle);
    drawing.save();
    drawing.translate(middle, edge - 4);
    drawing.rotate(-Math.PI / 2);
    drawing.textAlign = "left";
    drawing.fillText(shorten(drawing, label(end), edge - 6), 0, 0);
    drawing.restore();
  });
  if (view.chosen) {
    const [row, column] = view.chosen;
    drawing.lineWidth = 2;
    drawing.strokeStyle = colour("--focus");
    drawing.strokeRect(edge + column * size - 1, edge + row * size - 1, size + 1, size + 1);
  }
  return performance.now() - started;
}

const lengths = new Map();

// Cuts a text to a width. Remembers, because measuring a text costs more than drawing it.
function shorten(drawing, text, width) {
  const key = `${drawing.font} ${width} ${text}`;
  if (!lengths.has(key)) {
    if (lengths.size > 5000) lengths.clear();
    let letters = [...text].slice(0, 64);
    if (drawing.measureText(text).width > width) {
      while (letters.length > 1 && drawing.measureText(`${letters.join("")}…`).width > width) letters.pop();
      letters.push("…");
    }
    lengths.set(key, letters.join(""));
  }
  return lengths.get(key);
}

// Says what the chosen cell has.
function tell() {
  const output = element("matrix-cell");
  if (!view.chosen) return;
  const [row, column] = view.chosen;
  const title = T.cell(label(view.rows[row]), label(view.rows[column]));
  const cell = view.cells.get(row * view.rows.length + column);
  if (!cell || cell.bytes + cell.frames <= 0) return setText(output, `${title}: ${T.nothing}`);
  const mean = cell.frames > 0 ? `, mean frame ${bytes(cell.bytes / cell.frames)}` : "";
  const channels = [...cell.channels].join(" and ");
  setText(output, `${title}: ${bytes(cell.bytes)}/s, ${count(cell.frames)} frames/s${mean}, by ${channels}`);
}

// Takes new figures.
export function update(live) {
  // Without a reader there are no pairs.
  if (!live.wants?.pairs) return;
  drawn = { pairs: records(live.pairs), uplinks: list(live.uplinks) };
  render();
}

// Shows the figures; `again` orders the endpoints again.
function render(again = false) {
  const has = drawn.pairs.length > 0;
  setHidden(element("no-pairs"), has);
  setHidden(element("matrix-both"), !has);
  if (!has) return;
  const uplinks = new Set(drawn.uplinks);
  const sum = sums(drawn.pairs);
  const known = new Set(view.order);
  const fresh = [...sum.totals.keys()].filter((end) => !known.has(end));
  // The order stays as it is until the user asks for another, except that an empty map takes newcomers.
  if (again || view.order.length === 0 || (fresh.length > 0 && view.order.length < view.wanted)) order(sum, uplinks);
  const { shown, cells } = rows(sum);
  Object.assign(view, { rows: shown, cells, full: sum.full });
  if (view.chosen && view.chosen.some((place) => place >= shown.length)) view.chosen = null;
  draw();
  if (view.chosen && document.activeElement !== element("matrix-canvas")) tell();
  table();
}

function table() {
  const mean = (pair) => (number(pair.frames) > 0 ? bytes(number(pair.bytes) / pair.frames) : "-");
  fillTable(
    element("pair-table"),
    ["From", "To", "Bytes/s", "Frames/s", "Mean", "Channel"],
    drawn.pairs.slice(0, PAIRS_SHOWN).map((pair) => [
      name(pair.from), name(pair.to), bytes(pair.bytes), count(pair.frames), mean(pair), string(pair.channel) || "switch",
    ]),
  );
}

function choose(row, column) {
  const last = view.rows.length - 1;
  if (last < 0) return;
  view.chosen = [row, column].map((place) => Math.min(last, Math.max(0, place)));
  draw();
  tell();
}

const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// Connects the controls. `open` shows a VM, `wantPairs` says whether the section is on the screen.
export function start(open, wantPairs) {
  const canvas = element("matrix-canvas");
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const place = (from, offset) => Math.floor((from - offset - view.edge) / view.size);
    return [place(event.clientY, box.top), place(event.clientX, box.left)];
  };
  const inside = ([row, column]) => row >= 0 && column >= 0 && row < view.rows.length && column < view.rows.length;
  canvas.addEventListener("pointermove", (event) => {
    const cell = at(event);
    if (inside(cell) && String(cell) !== String(view.chosen)) choose(...cell);
  });
  canvas.addEventListener("click", (event) => {
    const [row, column] = at(event);
    if (inside([row, column]) && view.rows[row] !== null) open(view.rows[row]);
  });
  canvas.addEventListener("keydown", (event) => {
    const [row, column] = view.chosen ?? [0, 0];
    if (event.key === "Enter") {
      if (view.chosen && view.rows[row] !== null) open(view.rows[row]);
    } else if (event.key === "Home") choose(row, 0);
    else if (event.key === "End") choose(row, view.rows.length - 1);
    else if (MOVES[event.key]) {
      const [down, right] = MOVES[event.key];
      if (view.chosen) choose(row + down, column + right);
      else choose(0, 0);
    } else return;
    event.preventDefault();
  });
  element("matrix-size").addEventListener("change", (event) => {
    view.wanted = Number(event.target.value);
    view.order = [];
    render();
  });
  element("matrix-order").addEventListener("click", () => render(true));
  // A browser that was busy tells several changes at a time, the last one last.
  new IntersectionObserver((changes) => {
    wantPairs(changes[changes.length - 1].isIntersecting);
  }).observe(element("matrix"));
  new ResizeObserver(() => view.rows.length > 0 && draw()).observe(element("matrix-map"));
  legend();
}

function legend() {
  const swatch = (index) => {
    const box = document.createElement("span");
    box.className = `swatch heat-${index}`;
    return box;
  };
  const parts = ["less"];
  for (let index = 0; index < STEPS; index += 1) parts.push(swatch(index));
  parts.push(`more: from 1 kB/s, tenfold a step, to ${bytes(10 ** (STEPS + FIRST_POWER - 2))}/s. A hatched row has more receivers than are known.`);
  element("matrix-legend").append(...parts.flatMap((part) => [part, " "]));
}
