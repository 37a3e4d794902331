"""Hostile hosts on a network. For each MXoE frame that passes one of two interfaces, this program sends some
copies over the same interface, with the source address of an unknown host and a few bytes changed. The hostile
hosts do not know the keys of the endpoints, and send no frame with the address of an existing host.
Usage: unknown_hosts.py ONE OTHER SEED."""

import random
import select
import socket
import sys

ETHERTYPE = 0x86DF
RCVBUFFORCE = 33  # SO_RCVBUFFORCE, for which Python has no name

SOURCE = slice(6, 12)
TYPE = 16
CONNECT = 36
# The key in a connect request.
KEY = slice(36, 40)

# Offset of the first byte after the Ethernet header.
BODY = 14

# Number of hosts that this program imitates, in the range of locally administered addresses.
HOSTS = 5000


def attach(interface):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    port.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 8 << 20)
    port.bind((interface, ETHERTYPE))
    return port


def changed(frame, rng):
    """Returns a copy of a frame with a few bytes changed, from an unknown host."""
    frame = bytearray(frame)
    end = len(frame) if rng.random() < 0.3 else min(len(frame), 80)
    for _ in range(rng.randrange(4)):
        frame[rng.randrange(BODY, end)] = rng.choice([0, 255, rng.randrange(256)])
    # Half of the frames come from only eight hosts.
    number = rng.randrange(HOSTS) if rng.random() < 0.5 else rng.randrange(8)
    frame[SOURCE] = b"\x02\x01" + number.to_bytes(4, "big")
    if frame[TYPE] == CONNECT:
        frame[KEY] = rng.randrange(1 << 32).to_bytes(4, "big")
    return frame


def main():
    ports = [attach(sys.argv[1]), attach(sys.argv[2])]
    rng = random.Random(int(sys.argv[3]))
    print("ready", flush=True)
    while True:
        for port in select.select(ports, [], [])[0]:
            frame, sender = port.recvfrom(65536)
            # Only frames that leave this interface, and none of this program's own.
            if sender[2] != socket.PACKET_OUTGOING or frame[SOURCE][:2] == b"\x02\x01":
                continue
            for _ in range(rng.choice([0, 1, 1, 2, 4, 40])):
                port.send(changed(frame, rng))


if __name__ == "__main__":
    main()
