# SPDX-License-Identifier: Apache-2.0
"""The file system that lies (lying_fs.c), mounted, and what it is to lie about. As a program it changes the lies of one
that is mounted: lying.py CONTROL PER_1000 [KIND [ONLY [SPARED [CALL,... [HANG_MS]]]]]"""

import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass

KINDS = ("EIO", "ESTALE", "EMFILE", "EACCES", "ENOSPC", "EDQUOT", "ETIMEDOUT", "SHORT", "OLD", "HANG", "FLIP",
         "EROFS")
CALLS = ("look", "open", "make", "read", "write", "list", "move", "remove", "sync")
_LAYOUT = struct.Struct(f"<QIIII64s64sQ{len(KINDS)}Q")  # struct control of control.h


@dataclass(frozen=True)
class Lies:
    """Of 1000 calls of these classes, so many are lied to; `only` and `spared` are parts of paths."""

    kinds: tuple[str, ...]
    per_1000: int
    calls: tuple[str, ...] = CALLS
    only: str = ""
    spared: str = ""
    hang_ms: int = 0

    def __str__(self):
        hang = f" of {self.hang_ms} ms" if "HANG" in self.kinds else ""
        calls = "all calls" if self.calls == CALLS else "/".join(self.calls)
        return f"{'/'.join(self.kinds)}{hang} in {self.per_1000} of 1000, {calls}" + \
            (f", only {self.only!r}" if self.only else "")


def _put(memory, seed, lies):
    kinds = sum(1 << KINDS.index(kind) for kind in lies.kinds)
    calls = sum(1 << CALLS.index(call) for call in lies.calls)
    head = struct.pack("<QIIII64s64s", seed, 0, kinds, calls, lies.hang_ms, lies.only.encode(), lies.spared.encode())
    memory[:len(head)] = head
    memory[8:12] = struct.pack("<I", lies.per_1000)  # the switch comes last


class LyingDirectory:
    """A directory `path` below which everything is passed on to `backing`, truthfully until `lie` is called."""

    def __init__(self, program, work, seed):
        self.path, self.backing = work / "save", work / "backing"
        self.path.mkdir()
        self.backing.mkdir()
        # In memory, because a disk that other programs use may block for longer than storage_timeout_ms by itself.
        subprocess.run(("mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", self.backing), check=True)
        self._seed = seed
        control = work / "control"
        control.write_bytes(bytes(_LAYOUT.size))
        with open(control, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._process = subprocess.Popen((program, self.backing, control, self.path), stdin=subprocess.DEVNULL,
                                         stdout=subprocess.DEVNULL, stderr=open(work / "lying_fs.log", "wb"))
        self._wait_mounted()

    def _wait_mounted(self):
        deadline = time.monotonic() + 20
        while not os.path.ismount(self.path):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("lying_fs does not mount")
            time.sleep(0.01)

    def lie(self, lies):
        """From now on; what was told before counts on."""
        _put(self._memory, self._seed, lies)

    def freeze(self):
        """No call comes back until `be_truthful`."""
        self._process.send_signal(signal.SIGSTOP)

    def be_truthful(self):
        self._process.send_signal(signal.SIGCONT)
        self.lie(Lies((), 0))

    def told(self):
        """Kind -> how often so far."""
        counts = _LAYOUT.unpack(self._memory[:])[-len(KINDS):]
        return {kind: count for kind, count in zip(KINDS, counts) if count}

    def close(self):
        self.be_truthful()
        self._process.kill()  # callers that wait for it get ENOTCONN
        self._process.wait()
        subprocess.run(("umount", "-l", self.path), stderr=subprocess.DEVNULL, check=False)
        shutil.copytree(self.backing, self.backing.with_name("kept"), symlinks=True)  # to examine a failure
        subprocess.run(("umount", "-l", self.backing), check=False)


def main(control, per_1000, kind="EIO", only="", spared="", calls="", hang_ms="0"):
    lies = Lies((kind,), int(per_1000), tuple(calls.split(",")) if calls else CALLS, only, spared, int(hang_ms))
    with open(control, "r+b") as file, mmap.mmap(file.fileno(), _LAYOUT.size) as memory:
        _put(memory, 1, lies)


if __name__ == "__main__":
    main(*sys.argv[1:])
