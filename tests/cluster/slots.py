#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""slots.py SOCKET: prints the state of each slot by the agent's headers, as `STATE TERM.STEP`. The frame:
docs/formats.md."""
import json
import socket
import struct
import sys

REQUEST = b'{"op":"ls"}'
HEAD = struct.Struct("<4sIII")
MSG_CONTROL = 13

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
    s.connect(sys.argv[1])
    s.send(HEAD.pack(b"tcki", MSG_CONTROL, len(REQUEST), 0) + REQUEST)
    answer = json.loads(s.recv(1 << 16)[HEAD.size:].split(b"\0")[0])
for segment in answer["segments"]:
    for slot in segment["slots"]:
        version = slot["version"] or {"term": 0, "step": 0}
        print(slot["state"], f"{version['term']}.{version['step']}")
