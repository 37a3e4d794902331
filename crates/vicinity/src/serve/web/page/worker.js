// Reads the stream of figures beside the page's main thread. Takes `{ token }`, which opens the stream, and `{ wants }`,
// which asks for an interval. Answers `{ isOpen }`, `{ interval }`, and `{ isOver, status }` when the stream has ended.

import { Intervals, read } from "./interval.js";

// The interval is JSON again: the browser takes a text apart faster than a copy of objects.
const intervals = new Intervals((live) => postMessage({ interval: JSON.stringify(live) }));

async function* pieces(token) {
  const authorization = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch("v1/live", { headers: { Accept: "text/event-stream", ...authorization }, cache: "no-store" });
  if (!response.ok) throw Object.assign(new Error(), { status: response.status });
  postMessage({ isOpen: true });
  const [reader, decoder] = [response.body.getReader(), new TextDecoder()];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    yield decoder.decode(value, { stream: true });
  }
}

addEventListener("message", async ({ data }) => {
  if (data.wants) return intervals.ask(data.wants);
  try {
    await read(pieces(data.token), (live) => intervals.take(live));
    postMessage({ isOver: true });
  } catch (error) {
    postMessage({ isOver: true, status: error.status ?? 0 });
  }
});
