// A VM's detail: its problems, charts of fifteen minutes, threads, ports, reasons of drops, and histograms.

import { bytes, chart, count, h, list, name, nameElement, nanoseconds, number, percent, records, string } from "./format.js";

const SECONDS = 900;
const CHARTS = [
  ["use", "CPUs used", (value) => percent(value) + " %", 1],
  ["wait", "CPUs waited for", (value) => percent(value) + " %", 0.2],
  ["bytes", "Bytes/s", (value) => bytes(value), 0],
  ["drops", "Drops/s", (value) => count(value), 0],
];

const dialog = document.getElementById("detail");
const body = document.getElementById("detail-body");
let shown = null;

const element = () => body;

// Opens the dialog for a VM. `history` returns its points.
export function open(vm, live, history) {
  shown = { vm, history };
  document.getElementById("detail-title").replaceChildren(nameElement(vm));
  render(live);
  if (!dialog.open) dialog.showModal();
}

// Takes new figures, if the dialog is open.
export function update(live) {
  if (shown && dialog.open) render(live);
}

// Connects the controls. `onClose` is called when the dialog has closed.
export function start(onClose) {
  document.getElementById("detail-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    shown = null;
    onClose();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}

function table(caption, titles, rows) {
  const cell = (value, place) => (place === 0 ? h("th", { scope: "row" }, nameElement(value)) : h("td", { className: "figure" }, value));
  return h("div", { className: "wide" }, h("table", {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...titles.map((title, place) => h("th", { scope: "col", className: place ? "figure" : "" }, title)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map(cell)))),
  ));
}

function charts(points) {
  const last = points.length > 0 ? points[points.length - 1].at : 0;
  const figures = CHARTS.map(([key, title, format, top]) => {
    const canvas = h("canvas", { role: "img", "aria-label": `${title}, the last fifteen minutes` });
    const column = points.filter((point) => point.at >= last - SECONDS).map((point) => [point.at, number(point[key])]);
    const width = Math.max(120, Math.min(420, (window.innerWidth - 80) / (window.innerWidth < 700 ? 1 : 2)));
    const most = chart(canvas, column, { width, height: 64, from: last - SECONDS, to: last, top, line: key === "wait" || key === "drops" ? "--bad" : "--accent" });
    const now = column.length > 0 ? column[column.length - 1][1] : 0;
    return h("figure", {}, h("figcaption", {}, `${title}: ${format(now)} now, top ${format(most)}`), canvas);
  });
  return h("div", { className: "charts" }, ...figures);
}

// A histogram as a table with bars: greatest value of the bucket, and how many.
function histogram(caption, title, buckets, format) {
  const rows = list(buckets).filter(Array.isArray).map(([bound, values]) => [format(bound), number(values)]);
  if (rows.length === 0) return null;
  const most = Math.max(...rows.map(([, values]) => values), 1);
  const row = ([bound, values]) => h("tr", {},
    h("th", { scope: "row", className: "figure" }, bound),
    h("td", { className: "figure" }, String(values)),
    h("td", {}, h("meter", { max: most, value: values, "aria-label": `${values} of ${most}` })),
  );
  return h("div", { className: "wide" }, h("table", {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, h("th", { scope: "col", className: "figure" }, title), h("th", { scope: "col", className: "figure" }, "values"), h("th", { scope: "col" }, ""))),
    h("tbody", {}, ...rows.map(row)),
  ));
}

function ofPort(port) {
  const rates = port.rates ?? {};
  const state = string(port.state) + (port.reason ? `: ${string(port.reason)}` : "");
  const drops = Object.entries(port.drops ?? {}).map(([reason, values]) => [reason.replaceAll("_", " "), String(values)]);
  return [
    h("h3", {}, `Port on ${name(port.network)}`),
    h("p", {}, state + (port.mac ? `, address ${string(port.mac)}` : "") + `, ${number(port.fdb_entries)} FDB entries`),
    table("Rates per second", ["", "frames", "bytes", "notifications"], [
      ["sent", count(rates.tx_frames), bytes(rates.tx_bytes), count(rates.kicks)],
      ["received", count(rates.rx_frames), bytes(rates.rx_bytes), count(rates.calls)],
      ["waited for a receiver", count(rates.backpressured), "", ""],
      ["dropped", count(rates.drops), "", ""],
    ]),
    drops.length > 0 ? table("Dropped since the daemon started", ["reason", "frames"], drops) : null,
    histogram("Latency in the last second, of one burst in 8", "up to", port.latency, nanoseconds),
    histogram("Frames of each burst in the last second", "up to", port.bursts, (bound) => (bound == null ? "more" : String(bound))),
  ];
}

function ofRemote(peers) {
  const rows = peers.slice(0, 64).map((peer) => [string(peer.mac), bytes(peer.tx_bytes), bytes(peer.rx_bytes), String(number(peer.vlan) || "-")]);
  return table("Addresses behind the uplink, per second", ["address", "sent", "received", "VLAN"], rows);
}

function ofObserved(vm) {
  const row = (title, set) => [title, percent(set?.use), percent(set?.wait), percent(set?.block), count(set?.executions_per_second)];
  const threads = records(vm.threads).map((thread) => [`${string(thread.name)} (${number(thread.id)})`, percent(thread.use), percent(thread.wait), percent(thread.block)]);
  const group = vm.cgroup;
  const throttled = group?.throttled == null ? "" : `, held back ${percent(group.throttled)} %`;
  return [
    h("p", {}, `QEMU's process ${number(vm.pid)}` + (vm.accelerator ? `, ${string(vm.accelerator)}` : "") + (vm.memory ? `, ${bytes(vm.memory.bytes)} of memory` : "") + (vm.watts != null ? `, ${number(vm.watts).toFixed(1)} W` : "")),
    group ? h("p", {}, `Control group ${string(group.path)}, weight ${group.weight ?? "-"}${throttled}`) : null,
    table("Percent of one CPU", ["", "use", "wait", "block", "executions/s"], [row("guest", vm.guest), row("back-end", vm.backend)]),
    threads.length > 0 ? table("Threads, percent of one CPU", ["thread", "use", "wait", "block"], threads) : null,
    ...list(vm.notes).map((note) => h("p", { className: "note" }, string(note))),
  ];
}

function render(live) {
  const { vm, history } = shown;
  const problems = records(live.problems).filter((problem) => problem.vm === vm);
  const ports = records(live.ports).filter((port) => port.vm === vm);
  const observed = records(live.vms).filter((one) => one.name === vm);
  const scroll = dialog.scrollTop;
  const remote = records(live.remote_peers).filter((peer) => peer.vm === vm);
  const parts = [
    ...problems.map((problem) => h("p", { className: `problem ${problem.severity === "critical" ? "critical" : ""}` }, string(problem.text))),
    charts(history(vm)),
    ...observed.flatMap(ofObserved),
    ...ports.flatMap(ofPort),
    remote.length > 0 ? ofRemote(remote) : null,
  ].filter((part) => part != null);
  if (live.wants?.vm === vm && observed.length + ports.length === 0) parts.push(h("p", {}, "This VM has ended."));
  element().replaceChildren(...parts);
  dialog.scrollTop = scroll;
}
