// Reads the stream of figures, and reduces each interval to what the page shows: most of an interval is pairs and
// details that nobody looks at. Runs in a worker, and in Cockpit on the main thread.

// A line that is longer is not the daemon's.
const MAX_LINE = 32 << 20;

// Returns a number, whatever the daemon or a recording has in its place.
export const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : 0);

export const list = (value) => (Array.isArray(value) ? value : []);

// Returns the objects of a list, whatever else is in it.
export const records = (value) => list(value).filter((item) => typeof item === "object" && item !== null);

export const string = (value) => (typeof value === "string" ? value : value == null ? "" : String(value));

// Reads lines, which may be server-sent events or JSON, until the pieces of text end. Calls `take` with the object of
// the last line that has arrived.
export async function read(pieces, take) {
  let rest = "";
  for await (const piece of pieces) {
    rest += piece;
    if (rest.length > MAX_LINE) throw new Error("a line is too long");
    if (!piece.includes("\n")) continue;
    const lines = rest.split("\n");
    rest = lines.pop();
    // A page that was asleep shows the last line only.
    const last = lines.filter((line) => line.length > 1).pop();
    if (last !== undefined) take(JSON.parse(last.startsWith("data: ") ? last.slice(6) : last));
  }
}

// Gives a page the newest interval with what it wants, and the next one when it has asked for it: a page that is busy
// has no queue of intervals.
export class Intervals {
  #last = null;
  #wants = {};
  #isNew = false;
  #isAsked = true;
  #give;

  constructor(give) {
    this.#give = give;
  }

  take(live) {
    this.#last = live;
    this.#isNew = true;
    this.#next();
  }

  // Asks for the next interval. Other wants have the last one given again.
  ask(wants) {
    this.#isNew ||= wants.pairs !== this.#wants.pairs || wants.vm !== this.#wants.vm;
    this.#wants = { ...wants };
    this.#isAsked = true;
    this.#next();
  }

  #next() {
    if (this.#last === null || !this.#isNew || !this.#isAsked) return;
    this.#isNew = this.#isAsked = false;
    this.#give(reduce(this.#last, this.#wants));
  }
}

// Returns an interval with the rows of the VMs, with the pairs if they are wanted, the busiest first, and with the
// details of one VM.
function reduce(live, wants) {
  // Objects of other kinds are the page's to judge.
  if (typeof live !== "object" || live === null || Array.isArray(live)) return live;
  const ports = records(live.ports);
  return {
    ...live,
    rows: rows(live),
    vms: records(live.vms).filter((vm) => vm.name === wants.vm),
    ports: ports.filter((port) => port.vm === wants.vm),
    uplinks: ports.filter((port) => port.kind === "uplink").map((port) => string(port.vm)),
    pairs: wants.pairs ? records(live.pairs).sort((a, b) => number(b.bytes) - number(a.bytes)) : null,
    wants,
  };
}

// Returns the VMs that are observed or have a port, each once.
function rows(live) {
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
