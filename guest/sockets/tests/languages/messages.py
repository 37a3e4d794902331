# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sends messages by AF_VSOCK's SOCK_SEQPACKET to a server that returns each: messages.py serve PORT | send CID PORT"""
import socket
import sys

MOST = 1 << 20
LENGTHS = [1, 64, 4096, 65536, 65537, 200000, 3]


def new_socket():
    return socket.socket(socket.AF_VSOCK, socket.SOCK_SEQPACKET)


def serve(port):
    listener = new_socket()
    listener.bind((socket.VMADDR_CID_ANY, port))
    listener.listen()
    while True:
        connection, _ = listener.accept()
        with connection:
            while message := connection.recv(MOST):
                connection.send(message)


def send(cid, port):
    with new_socket() as connection:
        connection.connect((cid, port))
        for number, length in enumerate(LENGTHS):
            message = bytes([number]) * length
            assert connection.send(message) == length
            back = connection.recv(MOST)
            assert back == message, (number, length, len(back))
        # Three messages under way at once stay three.
        for length in LENGTHS[:3]:
            connection.send(bytes(length))
        assert [len(connection.recv(MOST)) for _ in range(3)] == LENGTHS[:3]
    print(f"{len(LENGTHS)} messages, the longest with {max(LENGTHS)} bytes")


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]))
else:
    send(int(sys.argv[2]), int(sys.argv[3]))
