// The connection to the daemon: its answers, and the stream of figures. Cockpit has a client of its own.

// A line that is longer is not the daemon's.
const MAX_LINE = 32 << 20;

// Cockpit gives a page no sockets, but an HTTP client of its own.
const cockpit = globalThis.cockpit?.http?.("/run/vicinity/view.sock", { superuser: "try" });

// Reads one answer of the daemon.
export async function get(path) {
  if (cockpit) return JSON.parse(await cockpit.get(`/${path}`));
  const response = await fetch(path, { headers: authorization(), cache: "no-store" });
  if (!response.ok) throw new Error(String(response.status));
  return response.json();
}

let token = location.hash.slice(1);

// Sets the token that requests carry.
export function setToken(text) {
  token = text;
}

const authorization = () => (token ? { Authorization: `Bearer ${token}` } : {});

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
  const [reader, decoder] = [response.body.getReader(), new TextDecoder()];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    yield decoder.decode(value, { stream: true });
  }
}

// Reads lines, which may be server-sent events or JSON, until the stream ends. Calls `onOpen`, then `show` with the
// object of the last line that has arrived.
export async function read(onOpen, show) {
  let rest = "";
  for await (const piece of pieces(onOpen)) {
    rest += piece;
    if (rest.length > MAX_LINE) throw new Error("a line is too long");
    if (!piece.includes("\n")) continue;
    const lines = rest.split("\n");
    rest = lines.pop();
    // A page that was asleep shows the last line only.
    const last = lines.filter((line) => line.length > 1).pop();
    if (last !== undefined) show(JSON.parse(last.startsWith("data: ") ? last.slice(6) : last));
  }
}
