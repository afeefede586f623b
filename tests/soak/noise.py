# SPDX-License-Identifier: Apache-2.0
"""What a stranger sends to a port: noise.py HOST PORT SEED"""

import random
import socket
import sys


def main(host, port, seed):
    rng = random.Random(int(seed))
    for payload in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", rng.randbytes(65536), b"\0" * 4096, b"\xff" * 100):
        try:
            with socket.create_connection((host, int(port)), 2) as connection:
                connection.sendall(payload)
        except OSError:
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
