"""An independent implementation of MXoE, written only from the protocol's tables of offsets.

The host has one endpoint. It takes messages of every kind from the host that connects, and sends
each message back: small ones in the same form, large ones as an offer from a buffer that begins in
the middle of a page. The test that starts this program compares the messages.
With PEER and PEER_KEY, it connects itself to this endpoint of the first host that asks for its name, and sends a message.
Usage: mxoe.py INTERFACE ENDPOINT KEY [PEER PEER_KEY]
"""

import random
import select
import socket
import struct
import sys
import time

ETHERTYPE = 0x86DF
NO_INDEX = 0xFFFF
HOST_QUERY, HOST_REPLY = 3, 4
TRUC, CONNECT, TINY, SMALL, MEDIUM, RNDV = 35, 36, 37, 38, 39, 40
PULL, PULL_REPLY, NOTIFY, NACK_LIB = 41, 42, 43, 44
PAGE = 4096
BLOCK = 8 * PAGE
OFFSET = 100  # of our buffers in their first page
RESEND = 0.5
RCVBUFFORCE = 33  # SO_RCVBUFFORCE, for which Python has no name


def after(seq):
    """Returns the next sequence number: 14 bits count, and the two above stay the same."""
    return seq & 0xC000 | (seq + 1) & 0x3FFF


def frame_of(destination, source, index, body):
    head = destination + source + struct.pack("!HH", ETHERTYPE, index)
    return (head + body).ljust(60, b"\0")


class Pulling:
    """A large message that this host pulls block by block."""

    def __init__(self, length, region, generation, offset, value):
        self.length, self.value = length, value
        self.region, self.generation, self.offset = region, generation, offset
        self.data = bytearray(length)
        self.missing = set()
        self.start = 0
        self.frame = 0
        self.requested_at = 0.0

    def block(self):
        """Returns first_frame_offset and block_length of the current block."""
        first = self.offset % PAGE if self.frame == 0 else 0
        return first, min(BLOCK - first, self.length - self.start)

    def begin_block(self):
        """Records offset and length of each frame of the current block."""
        first, length = self.block()
        self.missing = {}
        at, frame = self.start, self.frame
        while at < self.start + length:
            piece = min(PAGE - (first if frame == self.frame else 0), self.start + length - at)
            self.missing[frame] = (at, piece)
            at, frame = at + piece, frame + 1
        self.end, self.next_frame = at, frame


class Host:
    def __init__(self, interface, endpoint, key, wanted=None, wanted_key=0):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
        self.socket.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 8 << 20)
        self.socket.bind((interface, ETHERTYPE))
        self.mac = self.socket.getsockname()[4]
        self.endpoint, self.key = endpoint, key
        self.wanted, self.wanted_key = wanted, wanted_key
        self.session = random.getrandbits(32)
        self.peer = None  # its MAC
        self.index = NO_INDEX  # ours in its table; its index in our table is 0
        self.partner = None  # its endpoint
        self.peer_session = None
        self.send_seq = None
        self.receive_seq = 1
        self.unacknowledged = {}  # seq: [time of resend, bodies]
        self.reorder_buffer = {}
        self.fragments = {}
        self.regions = {}
        self.pulls = {}
        self.queue = []
        self.acks = 0

    def transmit(self, body):
        self.socket.send(frame_of(self.peer, self.mac, self.index, body))

    # Sending.

    def message(self, kind, length, value, extra=b""):
        """Returns a function that makes a message packet with a given sequence number."""
        return lambda seq: struct.pack(
            "!BBBBHHHHQI", kind, self.partner, self.endpoint, 0, length, 0, seq, self.receive_seq,
            value, self.peer_session,
        ) + extra

    def submit(self, makers):
        self.queue.append(makers)
        self.flush()

    def flush(self):
        while self.queue and len(self.unacknowledged) < 100:
            makers = self.queue.pop(0)
            seq = self.send_seq
            self.send_seq = after(seq)
            self.unacknowledged[seq] = [0.0, makers]
        self.resend()

    def resend(self):
        now = time.monotonic()
        for seq, entry in self.unacknowledged.items():
            if entry[0] <= now:
                entry[0] = now + RESEND
                for make in entry[1]:
                    self.transmit(make(seq))

    def send_data(self, value, data):
        if len(data) <= 128:
            kind = TINY if len(data) <= 32 else SMALL
            return self.submit([self.message(kind, len(data), value, data)])
        makers = []
        numbers = list(range(0, (len(data) + PAGE - 1) // PAGE))
        random.shuffle(numbers)  # a receiver accepts fragments in any order
        for number in numbers:
            piece = data[number * PAGE : (number + 1) * PAGE]
            extra = struct.pack("!HBBHH", len(piece), number, 12, 0, 0) + piece
            makers.append(self.message(MEDIUM, len(data), value, extra))
        self.submit(makers)

    def offer(self, value, data):
        region = next(number for number in range(128) if number not in self.regions)
        generation = random.randrange(256)
        self.regions[region] = (generation, data)
        extra = struct.pack("!IBBH", len(data), region, generation, OFFSET)
        self.submit([self.message(RNDV, 8, value, extra)])

    def notify(self, pulling):
        def make(seq):
            return struct.pack(
                "!BBBBIIBBIHHH", NOTIFY, self.partner, self.endpoint, 0, self.peer_session,
                pulling.length, pulling.region, pulling.generation, 0, seq, self.receive_seq, 0,
            )

        self.submit([make])

    def acknowledge(self):
        self.acks += 1
        self.transmit(struct.pack(
            "!BBBBBBHIBBHIIHBB", TRUC, self.partner, self.endpoint, 0, 16, 0, 0, self.peer_session,
            0x55, 0, self.receive_seq, self.peer_session, self.acks, self.receive_seq, 0, 0,
        ))

    def request(self, handle, pulling):
        pulling.requested_at = time.monotonic()
        first, length = pulling.block()
        self.transmit(struct.pack(
            "!BBBBIIBBHIIHHI", PULL, self.partner, self.endpoint, 0, self.peer_session,
            pulling.length, pulling.region, pulling.generation, pulling.offset, handle,
            self.endpoint ^ 0x21071980, first, length, pulling.frame,
        ))

    # Receiving.

    def acknowledged(self, expected):
        """Removes messages below `expected`, which have arrived."""
        for seq in list(self.unacknowledged):
            if (expected ^ seq) & 0xC000 == 0 and 0 < (expected - seq) & 0x3FFF < 0x2000:
                del self.unacknowledged[seq]
        self.flush()

    def arrived(self, seq, act):
        """Runs `act` for numbered packets in their order, once each."""
        ahead = (seq - self.receive_seq) & 0x3FFF
        if (seq ^ self.receive_seq) & 0xC000 == 0 and ahead <= 255:
            self.reorder_buffer.setdefault(seq, act)
            while self.receive_seq in self.reorder_buffer:
                act = self.reorder_buffer.pop(self.receive_seq)
                self.receive_seq = after(self.receive_seq)
                act()
        self.acknowledge()

    def receive(self, frame):
        destination, source = frame[:6], frame[6:12]
        ethertype, index = struct.unpack("!HH", frame[12:16])
        body = frame[16:]
        kind = body[0]
        if destination != self.mac or ethertype != ETHERTYPE:
            return
        if kind == HOST_QUERY:
            self.peer = source
            self.index, = struct.unpack("!H", body[2:4])
            name = b"witness\0"
            self.transmit(struct.pack("!BBHI", HOST_REPLY, len(name), 0, 0) + body[8:12] + bytes(4) + name)
        elif kind == CONNECT:
            self.connected(source, body)
        elif index == 0 and source == self.peer and self.partner is not None:
            self.receive_from_partner(kind, body)

    def connected(self, source, body):
        _, to, partner = struct.unpack("!BBB", body[:3])
        index, = struct.unpack("!H", body[10:12])
        session, key, start, is_reply, number = struct.unpack("!IIHBB", body[16:28])
        if to != self.endpoint:
            return
        if is_reply:
            if session == self.session and body[28] == 0 and self.partner is None:
                self.partner, self.peer_session, self.send_seq = partner, key, start
                self.send_data(0, b"connected")
            return
        self.peer, self.index = source, index
        status = 0 if key == self.key else 11
        if status == 0 and session != self.peer_session:
            self.partner, self.peer_session, self.send_seq = partner, session, start
        self.transmit(struct.pack(
            "!BBBBBBHHHIIIHBBBBH", CONNECT, partner, self.endpoint, 0, 16, 0, 0, 0, 0, 0, session,
            self.session, self.receive_seq, 1, number, status, 0, 0,
        ))

    def connect(self):
        """Connects to the wanted endpoint. Open-MX does not set the last four bytes."""
        self.transmit(struct.pack(
            "!BBBBBBHHHIIIHBB", CONNECT, self.wanted, self.endpoint, 0, 16, 0, 0, 0, 0, 0, self.session,
            self.wanted_key, self.receive_seq, 0, 1,
        ) + random.randbytes(4))

    def receive_from_partner(self, kind, body):
        if kind in (TINY, SMALL, MEDIUM, RNDV):
            length, _, seq, ack, value, session = struct.unpack("!HHHHQI", body[4:24])
            if session != self.session:
                return
            self.acknowledged(ack)
            if kind in (TINY, SMALL):
                data = bytes(body[24 : 24 + length])
                self.arrived(seq, lambda: self.send_data(value, data))
            elif kind == MEDIUM:
                self.fragment(seq, length, value, body)
            else:
                length, region, generation, offset = struct.unpack("!IBBH", body[24:32])
                pulling = Pulling(length, region, generation, offset, value)
                self.arrived(seq, lambda: self.pull(pulling))
        elif kind == NOTIFY:
            session, total, region, generation = struct.unpack("!IIBB", body[4:14])
            seq, ack = struct.unpack("!HH", body[18:22])
            if session == self.session:
                self.acknowledged(ack)
                self.arrived(seq, lambda: self.receive_notification(region, generation, total))
        elif kind == TRUC:
            session, = struct.unpack("!I", body[8:12])
            seq, = struct.unpack("!H", body[14:16])
            if session == self.session and body[12] == 0x55:
                self.acknowledged(seq)
        elif kind == PULL:
            self.serve_pull(body)
        elif kind == PULL_REPLY:
            self.piece(body)
        elif kind == NACK_LIB:
            sys.exit(f"refused: code {body[3]}")

    def fragment(self, seq, total, value, body):
        length, number, pipeline = struct.unpack("!HBB", body[24:28])
        parts = self.fragments.setdefault(seq, {})
        parts[number << pipeline] = bytes(body[32 : 32 + length])
        if sum(len(part) for part in parts.values()) < total:
            return
        data = b"".join(parts[at] for at in sorted(parts))
        del self.fragments[seq]
        self.arrived(seq, lambda: self.send_data(value, data))

    def pull(self, pulling):
        if pulling.length == 0:
            self.notify(pulling)
            return self.offer(pulling.value, b"")
        handle = random.getrandbits(32)
        self.pulls[handle] = pulling
        pulling.begin_block()
        self.request(handle, pulling)

    def piece(self, body):
        seqnum, length, offset, handle, magic = struct.unpack("!BHIII", body[1:16])
        pulling = self.pulls.get(handle)
        if pulling is None or magic != self.endpoint ^ 0x21071980:
            return
        for frame, place in pulling.missing.items():
            if place == (offset, length):
                assert frame % 256 == seqnum, "a frame's number"
                pulling.data[offset : offset + length] = body[16 : 16 + length]
                del pulling.missing[frame]
                break
        if pulling.missing:
            return
        pulling.start, pulling.frame = pulling.end, pulling.next_frame
        if pulling.start < pulling.length:
            pulling.begin_block()
            return self.request(handle, pulling)
        del self.pulls[handle]
        self.notify(pulling)
        self.offer(pulling.value, bytes(pulling.data))

    def serve_pull(self, body):
        session, total, region, generation, offset = struct.unpack("!IIBBH", body[4:16])
        tail = body[16:24]  # handle and magic, which the reply repeats
        first, length, frame = struct.unpack("!HHI", body[24:32])
        known = self.regions.get(region)
        if session != self.session or known is None or known[0] != generation:
            return
        data = known[1]
        assert offset == OFFSET and total <= len(data), "what was offered"
        start = frame * PAGE - OFFSET % PAGE + first
        end = start + length
        assert start >= 0 and end <= len(data) and first + length <= BLOCK, "a block of it"
        room = PAGE - first
        while start < end:
            piece = data[start : min(start + room, end)]
            head = struct.pack("!BBHI", PULL_REPLY, frame % 256, len(piece), start)
            self.transmit(head + tail + piece)
            start, frame, room = start + len(piece), frame + 1, PAGE

    def receive_notification(self, region, generation, total):
        if region in self.regions and self.regions[region][0] == generation:
            assert total == len(self.regions[region][1]), "all of it"
            del self.regions[region]

    def announce(self):
        """Announces this host, with a serial number that differs each time it starts."""
        nic = int.from_bytes(self.mac, "big")
        body = struct.pack("!B15xIII", 1, nic >> 32, nic & 0xFFFFFFFF, random.getrandbits(32))
        broadcast = b"\xff" * 6
        self.socket.send(frame_of(broadcast, self.mac, NO_INDEX, body).ljust(64, b"\0"))

    def run(self):
        print("ready", flush=True)
        announced = 0.0
        while True:
            if select.select([self.socket], [], [], 0.1)[0]:
                frame, sender = self.socket.recvfrom(65536)
                if sender[2] != socket.PACKET_OUTGOING:
                    self.receive(frame)
            self.resend()
            if time.monotonic() - announced > 1:
                announced = time.monotonic()
                self.announce()
                if self.wanted is not None and self.peer and self.partner is None:
                    self.connect()
            for handle, pulling in list(self.pulls.items()):
                if time.monotonic() - pulling.requested_at > 1:
                    self.request(handle, pulling)


if __name__ == "__main__":
    Host(sys.argv[1], *map(int, sys.argv[2:])).run()
