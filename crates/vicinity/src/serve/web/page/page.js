// The page: reads the figures as server-sent events, and shows what needs attention first.

import { T, ago, bytes, chart, clock, count, fillTable, h, list, name, nameElement, number, percent, records, setText, string } from "./format.js";
import * as matrix from "./matrix.js";
import * as detail from "./detail.js";

const VERSION = 1;
const SPARK = { width: 72, height: 20 };
const SPARK_SECONDS = 60;
const HISTORY_SECONDS = 900;
// A line that is longer is not the daemon's.
const MAX_LINE = 32 << 20;

const element = (id) => document.getElementById(id);

// `points` has each VM's points, the oldest first; `full` the VMs whose fifteen minutes were fetched.
const state = { live: null, token: location.hash.slice(1), sort: "wait", down: true, filter: "", points: new Map(), full: new Set(), rows: [] };

// ---- The daemon ----

// Cockpit gives a page no sockets, but an HTTP client of its own.
const cockpit = globalThis.cockpit?.http?.("/run/vicinity/view.sock", { superuser: "try" });

async function get(path) {
  if (cockpit) return JSON.parse(await cockpit.get(`/${path}`));
  const response = await fetch(path, { headers: authorization(), cache: "no-store" });
  if (!response.ok) throw new Error(String(response.status));
  return response.json();
}

const authorization = () => (state.token ? { Authorization: `Bearer ${state.token}` } : {});

// Yields the texts of a stream as they arrive.
async function* pieces(onOpen) {
  if (cockpit) {
    const queue = [];
    let wake = () => {};
    const request = cockpit.get("/v1/live");
    request.stream((text) => {
      queue.push(text);
      wake();
    });
    let over = false;
    request.then(() => {}, () => {}).finally(() => {
      over = true;
      wake();
    });
    onOpen();
    while (!over || queue.length > 0) {
      if (queue.length > 0) yield queue.shift();
      else await new Promise((resolve) => (wake = resolve));
    }
    return;
  }
  const response = await fetch("v1/live", { headers: { Accept: "text/event-stream", ...authorization() }, cache: "no-store" });
  if (!response.ok) throw Object.assign(new Error(), { status: response.status });
  onOpen();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    yield value;
  }
}

// Reads lines, which may be server-sent events or JSON, until the stream ends.
async function read(onOpen) {
  let rest = "";
  for await (const piece of pieces(onOpen)) {
    rest += piece;
    if (rest.length > MAX_LINE) throw new Error("a line is too long");
    const lines = rest.split("\n");
    rest = lines.pop();
    // A page that was asleep shows the last line only.
    const last = lines.filter((line) => line.length > 1).pop();
    if (last !== undefined) show(JSON.parse(last.startsWith("data: ") ? last.slice(6) : last));
  }
}

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function run() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 8000)) {
    try {
      await read(() => (pause = 500));
      lost(T.lost(clock(state.live?.at)));
    } catch (error) {
      if (error.status === 401) {
        await askForToken();
        continue;
      }
      lost(error.status === 503 ? T.full : state.live ? T.lost(clock(state.live.at)) : T.connecting);
    }
    await wait(pause);
  }
}

function lost(text) {
  document.body.classList.add("stale");
  setText(element("state"), text);
}

function askForToken() {
  const form = element("token-form");
  form.hidden = false;
  element("token").focus();
  return new Promise((resolve) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      state.token = element("token").value.trim();
      element("token").value = "";
      form.hidden = true;
      resolve();
    }, { once: true });
  });
}

// ---- Figures ----

// An interval that cannot be shown must not end the connection: the next one may be better.
function show(live) {
  try {
    take(live);
  } catch {
    lost(T.unreadable);
  }
}

function take(live) {
  if (typeof live !== "object" || live === null || Array.isArray(live)) return;
  if (number(live.version) > VERSION) return lost(T.older(number(live.version)));
  const first = state.live === null;
  state.live = live;
  document.body.classList.remove("stale");
  setText(element("state"), "");
  if (first) fetchHistory();
  remember(live);
  render();
}

async function fetchHistory(vm) {
  try {
    const all = await get(vm === undefined ? "v1/history" : `v1/history?vm=${encodeURIComponent(vm)}`);
    for (const one of records(all)) {
      const points = list(one.at).map((at, place) => ({ at, use: one.use?.[place], wait: one.wait?.[place], bytes: one.bytes?.[place], drops: one.drops?.[place] }));
      const since = points.length > 0 ? points[points.length - 1].at : 0;
      const newer = (state.points.get(one.vm) ?? []).filter((point) => point.at > since);
      state.points.set(one.vm, [...points, ...newer]);
    }
    if (vm !== undefined) detail.update(state.live);
  } catch {
    // The charts begin now, then.
  }
}

// Returns the VMs that are observed or have a port, each once.
function vms(live) {
  const all = new Map();
  const of = (vm) => {
    if (!all.has(vm)) all.set(vm, { vm, use: 0, wait: 0, bytes: 0, drops: 0, memory: null, states: [] });
    return all.get(vm);
  };
  const counted = new Set();
  for (const vm of records(live.vms)) {
    const row = of(string(vm.name));
    row.use += number(vm.guest?.use) + number(vm.backend?.use);
    row.wait += number(vm.guest?.wait) + number(vm.backend?.wait);
    if (vm.memory) row.memory = number(vm.memory.bytes);
    if (vm.traffic) {
      counted.add(row.vm);
      row.bytes += number(vm.traffic.tx_bytes) + number(vm.traffic.rx_bytes);
    }
  }
  for (const port of records(live.ports)) {
    if (port.kind === "uplink") continue;
    const row = of(string(port.vm));
    if (!counted.has(row.vm)) row.bytes += number(port.rates?.tx_bytes) + number(port.rates?.rx_bytes);
    row.drops += number(port.rates?.drops);
    if (port.state) row.states.push(string(port.state));
  }
  return [...all.values()];
}

function remember(live) {
  const at = number(live.at);
  const now = new Set();
  state.rows = vms(live);
  for (const row of state.rows) {
    now.add(row.vm);
    const points = state.points.get(row.vm) ?? state.points.set(row.vm, []).get(row.vm);
    // After a jump of the clock the old points make no sense.
    if (points.length > 0 && points[points.length - 1].at >= at) points.length = 0;
    points.push({ at, use: row.use, wait: row.wait, bytes: row.bytes, drops: row.drops });
    const keep = state.full.has(row.vm) ? HISTORY_SECONDS : SPARK_SECONDS;
    let old = 0;
    while (old < points.length && points[old].at < at - keep) old += 1;
    if (old > 0) points.splice(0, old);
  }
  for (const vm of state.points.keys()) if (!now.has(vm)) state.points.delete(vm);
}

function render() {
  const { live } = state;
  renderHost(live);
  renderProblems(live);
  renderVms();
  matrix.update(live);
  renderRemote(live);
  renderGroups(live);
  renderSpaces(live);
  renderMessages(live);
  detail.update(live);
  const unknown = list(live.cannot_read).map(string);
  element("unknown").hidden = unknown.length === 0;
  if (element("unknown-list").children.length !== unknown.length) {
    element("unknown-list").replaceChildren(...unknown.map((text) => h("li", {}, text)));
  }
  setText(element("version"), `Vicinity ${string(live.program)}, figures of ${clock(live.at)}`);
}

function renderHost(live) {
  const host = live.host ?? {};
  const networks = records(live.networks);
  const up = networks.filter((network) => network.up).length;
  const parts = [
    `${number(host.cpus)} CPUs`,
    host.busy == null ? null : `busy ${percent(host.busy)} %`,
    host.pressure == null ? null : `pressure ${number(host.pressure).toFixed(0)} %`,
    host.memory == null ? null : `memory ${bytes(number(host.memory) - number(host.memory_available))} of ${bytes(host.memory)}`,
    host.watts == null ? null : `${number(host.watts).toFixed(0)} W`,
    networks.length === 0 ? "no network" : `${up} of ${networks.length} networks up`,
  ];
  setText(element("host"), parts.filter((part) => part !== null).join(" · "));
}

function renderProblems(live) {
  const problems = records(live.problems);
  setText(element("problems-title"), problems.length === 0 ? "Problems" : `Problems (${problems.length})`);
  document.title = problems.length === 0 ? "Vicinity" : `(${problems.length}) Vicinity`;
  element("no-problems").hidden = problems.length > 0;
  const output = element("problem-list");
  const key = JSON.stringify(problems.map(({ kind, vm, network, text, remedy }) => [kind, vm, network, text, remedy]));
  if (output.dataset.key !== key) {
    output.dataset.key = key;
    output.replaceChildren(...problems.slice(0, 100).map(problemElement));
  }
  problems.slice(0, 100).forEach((problem, place) => {
    const since = output.children[place].querySelector(".since");
    setText(since, T.since(clock(problem.since), ago(number(live.at) - number(problem.since))));
  });
}

function problemElement(problem) {
  const who = problem.vm ?? problem.network;
  const title = h("button", { type: "button", className: "who" }, nameElement(who ?? "daemon"));
  if (problem.vm == null) title.disabled = true;
  else title.addEventListener("click", () => open(problem.vm));
  const kind = string(problem.kind).replaceAll("-", " ");
  const remedy = problem.remedy == null ? null : remedyElement(string(problem.remedy));
  return h("li", { className: problem.severity === "critical" ? "problem critical" : "problem" },
    h("p", { className: "head" }, title, " ", h("strong", {}, kind), " ", h("span", { className: "since" })),
    h("p", {}, string(problem.text)),
    remedy,
  );
}

function remedyElement(command) {
  const button = h("button", { type: "button" }, T.copy);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = T.copied;
      setTimeout(() => (button.textContent = T.copy), 2000);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(button.previousElementSibling);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
    }
  });
  return h("p", { className: "remedy" }, h("code", { dir: "ltr" }, command), button);
}

// ---- The table of VMs ----

const COLUMNS = [
  { key: "vm", title: "VM" },
  { key: "use", title: "Use %", text: (row) => percent(row.use), top: 1 },
  { key: "wait", title: "Wait %", text: (row) => percent(row.wait), top: 0.2, line: "--bad" },
  { key: "bytes", title: "Bytes/s", text: (row) => bytes(row.bytes), top: 0 },
  { key: "drops", title: "Drops/s", text: (row) => count(row.drops), top: 0, line: "--bad" },
  { key: "memory", title: "Memory", text: (row) => (row.memory == null ? "-" : bytes(row.memory)) },
  { key: "state", title: "Port", text: (row) => [...new Set(row.states)].join(", ") || "none" },
];

const ORDER_SECONDS = 5;
const table = { rows: new Map(), visible: new Set(), observer: null, ordered: 0, count: 0 };

function startTable() {
  const head = element("vm-table").tHead.rows[0];
  for (const { key, title } of COLUMNS) {
    const button = h("button", { type: "button" }, title);
    button.addEventListener("click", () => {
      if (state.sort === key) state.down = !state.down;
      else [state.sort, state.down] = [key, key !== "vm" && key !== "state"];
      if (state.live) renderVms(true);
    });
    head.append(h("th", { scope: "col", className: key === "vm" ? "" : "figure" }, button));
  }
  table.observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) table.visible.add(entry.target);
      else table.visible.delete(entry.target);
    }
    if (state.live) updateRows();
  });
  element("filter").addEventListener("input", (event) => {
    state.filter = event.target.value.toLowerCase();
    if (state.live) renderVms(true);
  });
}

function makeRow(vm) {
  const button = h("button", { type: "button", className: "who" }, nameElement(vm));
  button.addEventListener("click", () => open(vm));
  const row = h("tr", {}, h("th", { scope: "row" }, button));
  const made = { row, cells: [] };
  for (const { text, top, title } of COLUMNS.slice(1)) {
    const value = h("span", {});
    const canvas = top === undefined ? null : h("canvas", { width: SPARK.width, height: SPARK.height, role: "img", "aria-label": `${title}, the last minute` });
    row.append(h("td", { className: "figure" }, canvas, value));
    made.cells.push({ text, value, canvas });
  }
  table.observer.observe(row);
  return made;
}

function renderVms(now = false) {
  const all = state.rows;
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
  const body = element("vm-table").tBodies[0];
  // Rows do not move while somebody points at them, except on request, and not each second: a move lays the whole table
  // out again.
  const due = Math.abs(number(state.live.at) - table.ordered) >= ORDER_SECONDS && !body.matches(":hover, :focus-within");
  if (now || due || table.count !== all.length) arrange(body, all);
  updateRows();
  element("no-vms").hidden = all.length > 0;
  element("vm-table").hidden = all.length === 0;
}

function arrange(body, all) {
  const { sort, down, filter } = state;
  [table.ordered, table.count] = [number(state.live.at), all.length];
  const value = (row) => (sort === "vm" ? row.vm : sort === "state" ? row.states.join() : row[sort] ?? -1);
  const compare = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0);
  const sorted = [...all].sort((a, b) => (down ? compare(b, a) : compare(a, b)) || (a.vm < b.vm ? -1 : 1));
  const rows = sorted.filter((row) => row.vm.toLowerCase().includes(filter)).map((row) => table.rows.get(row.vm).row);
  if (rows.length !== body.children.length || rows.some((row, place) => body.children[place] !== row)) body.replaceChildren(...rows);
  setText(element("vm-count"), filter ? `${rows.length} of ${all.length}` : String(all.length));
  [...element("vm-table").tHead.rows[0].cells].forEach((cell, place) => {
    cell.setAttribute("aria-sort", COLUMNS[place].key === sort ? (down ? "descending" : "ascending") : "none");
  });
}

const still = window.matchMedia("(prefers-reduced-motion: reduce)");
let tick = 0;

function updateRows() {
  const at = number(state.live.at);
  tick += 1;
  const draws = !still.matches || tick % 5 === 1;
  for (const { row, figures, cells } of table.rows.values()) {
    if (!table.visible.has(row)) continue;
    row.classList.toggle("warm", figures.wait >= 0.05 && figures.wait < 0.2);
    row.classList.toggle("hot", figures.wait >= 0.2);
    const points = draws ? (state.points.get(figures.vm) ?? []).filter((point) => point.at >= at - SPARK_SECONDS) : [];
    cells.forEach(({ text, value, canvas }, place) => {
      setText(value, text(figures));
      if (!canvas || !draws) return;
      const { key, top, line } = COLUMNS[place + 1];
      chart(canvas, points.map((point) => [point.at, point[key]]), { ...SPARK, from: at - SPARK_SECONDS, to: at, top, line });
    });
  }
}

// ---- The other parts ----

const REMOTE_SHOWN = 40;

function renderRemote(live) {
  const peers = records(live.remote_peers);
  element("remote").hidden = peers.length === 0;
  const address = (peer) => string(peer.mac) + (number(peer.vlan) > 0 ? ` in VLAN ${number(peer.vlan)}` : "");
  fillTable(
    element("remote-table"),
    ["VM", "Address", "Sent/s", "Received/s", "Frames/s"],
    peers.slice(0, REMOTE_SHOWN).map((peer) => [
      name(peer.vm), address(peer), bytes(peer.tx_bytes), bytes(peer.rx_bytes), count(number(peer.tx_frames) + number(peer.rx_frames)),
    ]),
  );
}

function renderGroups(live) {
  const groups = records(live.direct);
  element("direct").hidden = groups.length === 0;
  const rows = groups.flatMap((group) => records(group.members).length > 0
    ? records(group.members).map((member) => [name(member.vm), name(group.name), string(member.state), string(member.reason)])
    : [["-", name(group.name), group.up ? "starting" : "down", string(group.reason)]]);
  fillTable(element("direct-table"), ["VM", "Group", "State", "Reason"], rows);
}

function renderSpaces(live) {
  const spaces = records(live.spaces);
  element("spaces").hidden = spaces.length === 0;
  fillTable(
    element("space-table"),
    ["VM", "State", "Slots", "Waiting", "Files", "Clients", "Sent", "Pushed"],
    spaces.map((space) => [
      name(space.vm), space.up ? "up" : `down: ${string(space.reason)}`, `${number(space.used)} of ${number(space.slots)}`, count(space.waiting),
      String(number(space.published)), String(number(space.clients)), bytes(space.sent), String(number(space.pushed)),
    ]),
  );
}

function renderMessages(live) {
  const plane = live.messages;
  element("messages").hidden = plane == null;
  const word = (member) => (!member.connected ? "VM is off" : !member.joined ? "not joined" : member.silent ? "silent" : member.polling ? "polls" : "joined");
  fillTable(
    element("message-table"),
    ["Member", "State", "Group", "Links", "Messages", "Bytes", "Protocol errors"],
    records(plane?.members).map((member) => [
      name(member.name), word(member), string(member.group), String(number(member.links)), String(number(member.messages)), bytes(member.bytes),
      String(number(member.protocol_errors)),
    ]),
  );
}

function open(vm) {
  if (!state.full.has(vm)) {
    state.full.add(vm);
    fetchHistory(vm);
  }
  detail.open(vm, state.live, (name) => state.points.get(name) ?? []);
}

startTable();
matrix.start(open);
detail.start();
run();
