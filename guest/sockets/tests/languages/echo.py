# SPDX-License-Identifier: Apache-2.0 OR MIT
"""echo.py server PORT | echo.py client ADDRESS PORT BYTES: asyncio; the client prints what it sees of the connection."""

import asyncio
import sys


async def answer(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(port):
    server = await asyncio.start_server(answer, "0.0.0.0", port)
    await server.serve_forever()


async def run(address, port, count):
    reader, writer = await asyncio.open_connection(address, port)
    data = bytes(number * 7 % 251 for number in range(count))
    writer.write(data)
    back, _ = await asyncio.gather(reader.readexactly(count), writer.drain())
    assert back == data
    print(*writer.get_extra_info("peername"))
    writer.close()


if sys.argv[1] == "server":
    asyncio.run(serve(int(sys.argv[2])))
else:
    asyncio.run(run(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
