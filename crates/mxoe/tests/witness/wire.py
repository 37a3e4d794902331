"""A bad wire between two interfaces: loses, doubles and delays frames of MXoE. What happens to
which frame follows from the seed. Usage: wire.py ONE OTHER LOSS DOUBLING DELAY SEED: percent,
percent, milliseconds at most."""

import heapq
import random
import select
import socket
import sys
import time

ETHERTYPE = 0x86DF
RCVBUFFORCE = 33  # SO_RCVBUFFORCE, which Python has no name for


def attach(interface):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    port.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 8 << 20)
    port.bind((interface, ETHERTYPE))
    return port


def main():
    one, other = attach(sys.argv[1]), attach(sys.argv[2])
    loss, doubling, delay = float(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]) / 1000
    dice = random.Random(int(sys.argv[6]))
    across = {one: other, other: one}
    late, count = [], 0
    print("ready", flush=True)
    while True:
        pause = max(0, late[0][0] - time.monotonic()) if late else None
        for port in select.select([one, other], [], [], pause)[0]:
            frame, sender = port.recvfrom(65536)
            if sender[2] == socket.PACKET_OUTGOING or dice.uniform(0, 100) < loss:
                continue
            for _ in range(2 if dice.uniform(0, 100) < doubling else 1):
                count += 1
                due = time.monotonic() + dice.uniform(0, delay)
                heapq.heappush(late, (due, count, across[port], frame))
        while late and late[0][0] <= time.monotonic():
            _, _, port, frame = heapq.heappop(late)
            port.send(frame)


if __name__ == "__main__":
    main()
