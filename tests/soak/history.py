# SPDX-License-Identifier: Apache-2.0
"""The history of a campaign: one JSON object per line, appended by the driver and by every trainer, the intent before
the deed. `t` is CLOCK_MONOTONIC in seconds."""

import json
import os
import time


class History:
    def __init__(self, path):
        self.path = path
        self._out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._in = open(path, "rb")
        self._rest = b""

    def add(self, event, **members):
        line = json.dumps({"t": round(time.monotonic(), 6), "event": event, **members}) + "\n"
        os.write(self._out, line.encode())

    def new(self):
        """What was written since the last call, by anybody."""
        self._rest += self._in.read()
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]


def read(path):
    with open(path, encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    return sorted(events, key=lambda event: event["t"])
