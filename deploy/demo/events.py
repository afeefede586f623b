# SPDX-License-Identifier: Apache-2.0
"""What trainers report to the driver: one JSON object per line, one file per trainer process."""

import json
import os
import pathlib
import time


class Writer:
    def __init__(self, directory, node, rank):
        path = pathlib.Path(directory) / f"{node}.{os.getpid()}.jsonl"
        self._file = open(path, "w", buffering=1, encoding="ascii")
        self._common = {"node": node, "rank": rank, "pid": os.getpid()}

    def write(self, event, **values):
        self._file.write(json.dumps({"at": time.time(), "event": event, **self._common, **values}) + "\n")


class Reader:
    """Collects the events of all trainer processes of one run, in the order they were seen."""

    def __init__(self, directory):
        self._directory = pathlib.Path(directory)
        self._offsets = {}
        self.all = []

    def poll(self):
        """The events that are new, oldest first."""
        fresh = []
        for path in self._directory.glob("*.jsonl"):
            with open(path, "rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
            whole = data.rfind(b"\n") + 1  # a trainer killed while writing leaves half a line
            self._offsets[path] = self._offsets.get(path, 0) + whole
            fresh += [json.loads(line) for line in data[:whole].splitlines()]
        fresh.sort(key=lambda event: event["at"])
        self.all += fresh
        return fresh
