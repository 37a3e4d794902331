"""Forwards MXoE frames between two interfaces, and loses, duplicates and delays some of them. The
seed determines what happens to each frame. Usage: wire.py ONE OTHER LOSS DUPLICATION DELAY SEED:
percent, percent, milliseconds at most."""

import heapq
import random
import select
import socket
import sys
import time

ETHERTYPE = 0x86DF
RCVBUFFORCE = 33  # SO_RCVBUFFORCE, for which Python has no name


def attach(interface):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    port.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 8 << 20)
    port.bind((interface, ETHERTYPE))
    return port


def main():
    one, other = attach(sys.argv[1]), attach(sys.argv[2])
    loss, duplication, delay = float(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]) / 1000
    rng = random.Random(int(sys.argv[6]))
    across = {one: other, other: one}
    delayed, count = [], 0
    print("ready", flush=True)
    while True:
        pause = max(0, delayed[0][0] - time.monotonic()) if delayed else None
        for port in select.select([one, other], [], [], pause)[0]:
            frame, sender = port.recvfrom(65536)
            if sender[2] == socket.PACKET_OUTGOING or rng.uniform(0, 100) < loss:
                continue
            for _ in range(2 if rng.uniform(0, 100) < duplication else 1):
                count += 1
                due = time.monotonic() + rng.uniform(0, delay)
                heapq.heappush(delayed, (due, count, across[port], frame))
        while delayed and delayed[0][0] <= time.monotonic():
            _, _, port, frame = heapq.heappop(delayed)
            port.send(frame)


if __name__ == "__main__":
    main()
