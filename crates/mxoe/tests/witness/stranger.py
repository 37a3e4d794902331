"""Hostile hosts on a wire. Each frame of MXoE that goes over one of two interfaces is sent there again, some
times, with another host's address as its source and a few bytes changed. They do not know the endpoints' key,
and send no frame with the address of a host that is there. Usage: stranger.py ONE OTHER SEED."""

import random
import select
import socket
import sys

ETHERTYPE = 0x86DF
RCVBUFFORCE = 33  # SO_RCVBUFFORCE, which Python has no name for

SOURCE = slice(6, 12)
TYPE = 16
CONNECT = 36
# Of a connect.
KEY = slice(36, 40)

# Behind the addresses and the type of an Ethernet frame.
BODY = 14

# So many hosts they say they are, in the range of locally administered addresses.
HOSTS = 5000


def attach(interface):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    port.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 8 << 20)
    port.bind((interface, ETHERTYPE))
    return port


def changed(frame, dice):
    """A frame that is almost this one, of a stranger."""
    frame = bytearray(frame)
    end = len(frame) if dice.random() < 0.3 else min(len(frame), 80)
    for _ in range(dice.randrange(4)):
        frame[dice.randrange(BODY, end)] = dice.choice([0, 255, dice.randrange(256)])
    # Half of what comes is of a few hosts.
    number = dice.randrange(HOSTS) if dice.random() < 0.5 else dice.randrange(8)
    frame[SOURCE] = b"\x02\x01" + number.to_bytes(4, "big")
    if frame[TYPE] == CONNECT:
        frame[KEY] = dice.randrange(1 << 32).to_bytes(4, "big")
    return frame


def main():
    ports = [attach(sys.argv[1]), attach(sys.argv[2])]
    dice = random.Random(int(sys.argv[3]))
    print("ready", flush=True)
    while True:
        for port in select.select(ports, [], [])[0]:
            frame, sender = port.recvfrom(65536)
            # What the wire sends there, and not what comes from there, nor what was sent here.
            if sender[2] != socket.PACKET_OUTGOING or frame[SOURCE][:2] == b"\x02\x01":
                continue
            for _ in range(dice.choice([0, 1, 1, 2, 4, 40])):
                port.send(changed(frame, dice))


if __name__ == "__main__":
    main()
