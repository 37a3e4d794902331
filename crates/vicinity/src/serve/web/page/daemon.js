// The connection to the daemon: its answers, and the stream of figures, which a worker reads. Cockpit gives a page no
// sockets, but an HTTP client of its own, which runs on the main thread alone.

import { Intervals, read } from "./interval.js";

const cockpit = globalThis.cockpit?.http?.("/run/vicinity/view.sock", { superuser: "try" });

let token = location.hash.slice(1);

// Sets the token that requests carry.
export function setToken(text) {
  token = text;
}

// Reads one answer of the daemon.
export async function get(path) {
  if (cockpit) return JSON.parse(await cockpit.get(`/${path}`));
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { headers, cache: "no-store" });
  if (!response.ok) throw new Error(String(response.status));
  return response.json();
}

// What the page shows besides its rows: the pairs, and the details of a VM.
const wants = { pairs: false, vm: null };
const source = cockpit ? cockpitSource() : workerSource();

// Says what the page shows from now on.
export function want(change) {
  Object.assign(wants, change);
  source.ask();
}

// Reads the stream until it ends. Calls `onOpen`, then `show` with each interval.
export function listen(onOpen, show) {
  return source.listen(onOpen, (live) => {
    show(live);
    source.ask();
  });
}

// Each connection has a worker of its own, so the next one also begins anew when the script could not be read or run.
function workerSource() {
  let worker = null;
  const ask = () => worker?.postMessage({ wants });
  const listen = (onOpen, show) => new Promise((resolve, reject) => {
    worker?.terminate();
    worker = new Worker("worker.js", { type: "module" });
    const fail = (status) => reject(Object.assign(new Error(), { status }));
    worker.onerror = () => fail(0);
    worker.onmessage = ({ data }) => {
      if (data.isOpen) onOpen();
      else if (data.interval !== undefined) show(JSON.parse(data.interval));
      else if (data.status === undefined) resolve();
      else fail(data.status);
    };
    ask();
    worker.postMessage({ token });
  });
  return { ask, listen };
}

function cockpitSource() {
  let take = () => {};
  const intervals = new Intervals((live) => take(live));
  const listen = (onOpen, show) => {
    take = show;
    return read(cockpitPieces(onOpen), (live) => intervals.take(live));
  };
  return { ask: () => intervals.ask(wants), listen };
}

// Yields the texts of Cockpit's stream as they arrive.
async function* cockpitPieces(onOpen) {
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
}
