// The page: reads the figures as server-sent events, and shows what needs attention first.

import { T, ago, bytes, clock, count, fillTable, h, list, name, nameElement, number, percent, records, setHidden, setText, string } from "./format.js";
import { get, listen, setToken, want } from "./daemon.js";
import * as table from "./vm_table.js";
import * as matrix from "./matrix.js";
import * as detail from "./detail.js";

const VERSION = 1;
const HISTORY_SECONDS = 900;

const element = (id) => document.getElementById(id);

// `points` has each VM's points, the oldest first; `full` the VMs whose fifteen minutes were fetched.
const state = { live: null, points: new Map(), full: new Set(), rows: [] };

// ---- The connection ----

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function run() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 8000)) {
    try {
      await listen(() => (pause = 500), show);
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
      setToken(element("token").value.trim());
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
  // The last interval comes again when the page wants more of it.
  const isNew = first || live.at !== state.live.at;
  state.live = live;
  document.body.classList.remove("stale");
  setText(element("state"), "");
  if (first) fetchHistory();
  if (isNew) remember(live);
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

function remember(live) {
  const at = number(live.at);
  const now = new Set();
  state.rows = records(live.rows);
  for (const row of state.rows) {
    now.add(row.vm);
    const points = state.points.get(row.vm) ?? state.points.set(row.vm, []).get(row.vm);
    // After a jump of the clock the old points make no sense.
    if (points.length > 0 && points[points.length - 1].at >= at) points.length = 0;
    points.push({ at, use: row.use, wait: row.wait, bytes: row.bytes, drops: row.drops });
    const keep = state.full.has(row.vm) ? HISTORY_SECONDS : table.SPARK_SECONDS;
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
  table.update(state.rows, number(live.at));
  matrix.update(live);
  renderRemote(live);
  renderGroups(live);
  renderSpaces(live);
  renderMessages(live);
  detail.update(live);
  const unknown = list(live.cannot_read).map(string);
  setHidden(element("unknown"), unknown.length === 0);
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
  const title = problems.length === 0 ? "Vicinity" : `(${problems.length}) Vicinity`;
  if (document.title !== title) document.title = title;
  setHidden(element("no-problems"), problems.length > 0);
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

// ---- The other parts ----

const REMOTE_SHOWN = 40;

function renderRemote(live) {
  const peers = records(live.remote_peers);
  setHidden(element("remote"), peers.length === 0);
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
  setHidden(element("direct"), groups.length === 0);
  const rows = groups.flatMap((group) => records(group.members).length > 0
    ? records(group.members).map((member) => [name(member.vm), name(group.name), string(member.state), string(member.reason)])
    : [["-", name(group.name), group.up ? "starting" : "down", string(group.reason)]]);
  fillTable(element("direct-table"), ["VM", "Group", "State", "Reason"], rows);
}

function renderSpaces(live) {
  const spaces = records(live.spaces);
  setHidden(element("spaces"), spaces.length === 0);
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
  setHidden(element("messages"), plane == null);
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

const pointsOf = (vm) => state.points.get(vm) ?? [];

function open(vm) {
  if (!state.full.has(vm)) {
    state.full.add(vm);
    fetchHistory(vm);
  }
  detail.open(vm, state.live, pointsOf);
  want({ vm });
}

table.start(open, pointsOf);
matrix.start(open, (pairs) => want({ pairs }));
detail.start(() => want({ vm: null }));
run();
