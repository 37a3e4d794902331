// SPDX-License-Identifier: Apache-2.0 OR MIT
// echo.js server PORT | echo.js client ADDRESS PORT BYTES: the client prints what it sees of the connection.
const net = require("net");
const [, , what, ...words] = process.argv;

if (what === "server") {
  net.createServer((socket) => socket.pipe(socket)).listen(Number(words[0]), "0.0.0.0");
} else {
  const [address, port, count] = words;
  const data = Buffer.from(Array.from({ length: Number(count) }, (_, number) => (number * 7) % 251));
  const socket = net.connect(Number(port), address, () => socket.write(data));
  const parts = [];
  let got = 0;
  socket.on("data", (part) => {
    parts.push(part);
    got += part.length;
    if (got < data.length) return;
    if (!Buffer.concat(parts).equals(data)) process.exit(1);
    console.log(socket.remoteAddress, socket.remotePort);
    socket.end();
  });
}
