# SPDX-License-Identifier: Apache-2.0
"""Stands in for native.Client where a test needs no library: records its calls."""


class FakeClient:
    watch = None
    is_open = False  # there is nothing to detach from
    rank = 1  # which shows no progress

    def __init__(self):
        self.records = []
        self.moved = {}
        self.capacities = {}
        self.blobs = {}
        self.resharding = {}

    def add_record(self, **record):
        self.records.append(record)
        return len(self.records) - 1

    def set_address(self, number, address):
        self.moved[number] = address

    def add_blob(self, key, capacity):
        self.capacities[key] = capacity

    def set_reshard(self, key, kind):
        self.resharding[key] = kind

    def set_check(self, check):
        self.check = check

    def set_confirm(self, on):
        self.confirms = on

    def set_blob(self, key, data):
        self.blobs[key] = data

    def get_blob(self, key):
        return self.blobs.get(key, b"")
