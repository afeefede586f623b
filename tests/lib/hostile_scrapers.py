# SPDX-License-Identifier: Apache-2.0
"""Clients that no HTTP server wants: python3 hostile_scrapers.py HOST:PORT SEED SECONDS.

Some never finish a request, some send garbage, some ask and never read, some connect as often as they can.
"""

import random
import socket
import sys
import threading
import time


def connect(address):
    sock = socket.create_connection(address, timeout=2)
    sock.setblocking(False)
    return sock


def send(sock, data):
    try:
        sock.send(data)
    except BlockingIOError:
        pass


def slow(address, chance):
    """A byte now and then, so that the connection is never idle."""
    sock = connect(address)
    send(sock, b"GET /metrics HTTP/1.1\r\nX: ")
    for _ in range(200):
        time.sleep(0.05)
        send(sock, bytes([chance.randrange(97, 123)]))


def garbage(address, chance):
    sock = connect(address)
    for _ in range(chance.randrange(1, 20)):
        send(sock, chance.randbytes(chance.randrange(1, 65536)))


def deaf(address, chance):
    sock = connect(address)
    send(sock, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * chance.randrange(1, 50))
    time.sleep(chance.random() * 10)


def hasty(address, chance):
    del chance
    for _ in range(100):
        connect(address).close()


def keep_on(what, address, chance, end):
    while time.monotonic() < end:
        try:
            what(address, chance)
        except OSError:
            time.sleep(0.01)


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    end = time.monotonic() + float(sys.argv[3])
    threads = [
        threading.Thread(target=keep_on, args=(what, (host, int(port)), random.Random(f"{sys.argv[2]} {i}"), end), daemon=True)
        for i, what in enumerate([slow] * 30 + [garbage] * 4 + [deaf] * 30 + [hasty])
    ]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    for thread in threads:
        thread.join()


main()
