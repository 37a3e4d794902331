"""A file system with one file, whose server does not answer that it is flushed.

Linux asks for a flush at each close and waits for the answer uninterruptibly once a signal has come
(`fuse_flush` sets `force`; `request_wait_answer` in fs/fuse/dev.c). The waits end with this process, which
alone has the device. Messages: include/uapi/linux/fuse.h.
"""

import ctypes
import os
import signal
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 25, 26, 36, 42
ENOSYS, NOSUID_NODEV = 38, 2 | 4


def attributes(node):
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("<6Q3I7I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 0, 0)


def answer(code, node, body):
    """The body of an answer; none when there is to be no such request."""
    if code == INIT:
        minor = min(struct.unpack_from("<I", body, 4)[0], 31)
        return struct.pack("<4I2H2I2H8I", 7, minor, 0, 0, 0, 0, 4096, 1, 0, 0, *[0] * 8)
    if code == LOOKUP:
        return struct.pack("<4Q2I", 2, 0, 0, 0, 0, 0) + attributes(2)
    if code == GETATTR:
        return struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    if code == OPEN:
        return bytes(16)
    return None


def main():
    folder = sys.argv[1]
    # The alarm ends this server, and with it every wait, even if the test does not end.
    signal.alarm(100)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"vicinity-test", folder.encode(), b"fuse", NOSUID_NODEV, options):
        raise OSError(ctypes.get_errno(), "mount")
    print("ready", flush=True)
    while True:
        request = os.read(device, 1 << 16)
        _, code, unique, node = struct.unpack_from("<2I2Q", request)
        if code in (FLUSH, FORGET, BATCH_FORGET, INTERRUPT):
            continue
        body = answer(code, node, request[40:])
        error = 0 if body is not None else -ENOSYS
        body = body or b""
        os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


main()
