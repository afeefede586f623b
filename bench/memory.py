# SPDX-License-Identifier: Apache-2.0
"""G16: the most host memory that the agents of two nodes have at any moment of a training, per byte of its state.
Counted are the pages that their segments take in the kernel, and not what the agents say."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

MIB, STEP_MS, REDUCE_KB, PAIRS, EVERY, SAVES, SEED = 256, 20, 100, 1, 10, 3, 1
ADDRESS, LIMIT_S, LOOK_S = "127.0.0.1", 120, 0.05
# copies, slots, and the goal: own slots for each shard, and two for each copy of another node's.
SETTINGS = ((2, 3, 5), (2, 2, 4), (1, 3, 3), (1, 2, 2))
BESIDE = 1.01  # headers and digests, about 2 MiB for each image


def config(directory, rank, copies, slots):
    return {"job": "memory", "node": f"n{rank}", "runtime_dir": f"{directory}/run", "save_dir": f"{directory}/save",
            "memory_cap_bytes": "4GiB", "linger_s": 1, "save_mem_interval": 0, "save_storage_interval": 0,
            "net_device": "lo", "max_ckpt_num": 1, "log_level": 2, "copies": copies, "slots": slots,
            "target_inflation": 0}


def start_rank(directory, rank, copies, slots):
    program = pathlib.Path(os.environ["TIERCKPT_BUILD_DIR"], "bench/bench_pace")
    numbers = ",".join(map(str, (rank, MIB, STEP_MS, REDUCE_KB, PAIRS, EVERY, SAVES, SEED)))
    return subprocess.Popen([program, numbers, ADDRESS, json.dumps(config(directory, rank, copies, slots))],
                            stdout=subprocess.DEVNULL)


def agents(directory):
    """Processes that were started with a path in this directory: agents and their supervisors."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"{directory}/run/".encode() in (entry / "cmdline").read_bytes():
                yield entry
        except OSError:  # it has ended
            continue


def segments(process):
    """Bytes of each segment that it has open, by inode."""
    found = {}
    try:
        for entry in (process / "fd").iterdir():
            if os.readlink(entry).startswith("/memfd:"):
                about = entry.stat()
                found[about.st_ino] = about.st_blocks * 512
    except OSError:  # it has ended, or has closed one
        pass
    return found


def memory(directory):
    found = {}
    for process in agents(directory):
        if b"bench_pace" not in (process / "cmdline").read_bytes():
            found |= segments(process)
    return sum(found.values())


def most(directory, copies, slots):
    """The most bytes at any moment of a training with these settings."""
    pathlib.Path(directory, "save").mkdir()
    ranks = [start_rank(directory, rank, copies, slots) for rank in range(2)]
    until, found = time.monotonic() + LIMIT_S, 0
    while any(rank.poll() is None for rank in ranks) and time.monotonic() < until:
        found = max(found, memory(directory))
        time.sleep(LOOK_S)
    for rank in ranks:
        rank.kill()
        rank.wait()
    if any(rank.returncode != 0 for rank in ranks):
        raise RuntimeError(f"the ranks ended with {[rank.returncode for rank in ranks]}")
    return found


def row(copies, slots, goal, found):
    state = 2 * MIB << 20
    value = found / state
    return {"id": f"G16.{copies}.{slots}", "what": f"host memory of the agents, copies = {copies}, slots = {slots}",
            "value": round(value, 4), "unit": "x the state", "goal": goal, "met": value <= goal * BESIDE,
            "better": "less", "rounds": 1, "spread": 0.0, "reference": "the state", "reference_value": state / 1e6,
            "reference_unit": "MB"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="not used: it does not vary")
    parser.add_argument("--dir", required=True)
    parser.add_argument("id", nargs="*")
    args = parser.parse_args()
    for copies, slots, goal in SETTINGS:
        if args.id and f"G16.{copies}.{slots}" not in args.id:
            continue
        with tempfile.TemporaryDirectory(dir=args.dir, ignore_cleanup_errors=True) as directory:
            print(json.dumps(row(copies, slots, goal, most(directory, copies, slots))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
