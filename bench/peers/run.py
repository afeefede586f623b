# SPDX-License-Identifier: Apache-2.0
"""PEERS: other ways to save the same state, and ours. Each way runs in processes of its own, several times, since only
their first save shows what a first save costs; the ways take turns, in another order each round. A way that is not
installed is skipped by name."""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import agent
import figures
import usage

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS_MAX = 3  # a round of all takes minutes
SAVES = 2  # of each round, after the first one
STATE_MIB = {"cpu": 256, "cuda": 1024}  # of each rank
WORLD = {"cpu": 2, "cuda": 1}
TIMEOUT_S = 180
SKIPPED = 77
FAMILIES = {"cpu": "PEERS", "cuda": "GPU.stall"}
NEEDS = {"safetensors": "safetensors", "torch_checkpointing": "torch_checkpointing", "lm-resiliency": "lm_resiliency"}
NAMES = {"cuda": ["torch.save", "dcp.async.pinned", "tierckpt", "tierckpt.overlapped"],
         "cpu": ["torch.save", "safetensors", "dcp.save", "dcp.async.thread", "dcp.async.process", "dcp.async.shared",
                 "torch_checkpointing", "lm-resiliency", "tierckpt", "tierckpt.storage", "tierckpt.overlapped"]}


def say(row):
    print(json.dumps(row), flush=True)


def is_installed(module):
    return importlib.util.find_spec(module) is not None


def has_cuda():
    import torch
    return torch.cuda.is_available()


@contextlib.contextmanager
def place(name, parent):
    """The directory of one measure, with an agent in it if it is ours."""
    with tempfile.TemporaryDirectory(prefix="peer.", dir=os.path.abspath(parent), ignore_cleanup_errors=True) as path:
        with agent.running(path) if figures.is_ours(name) else contextlib.nullcontext():
            yield path


def start(name, args, directory, rank, errors):
    command = [sys.executable, HERE / "measure.py", name, "--saves", str(SAVES), "--dir", directory, "--device",
               args.device, "--state-mib", str(args.state_mib), "--rank", str(rank), "--world", str(args.world)]
    env = dict(agent.environment(), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", PYTHONWARNINGS="ignore")
    return subprocess.Popen(command, env=env, text=True, stderr=errors, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL)


def go_on(process):
    """The answer to a moment. A process that has ended reads none, and its output ends, too."""
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write("go on\n")
        process.stdin.flush()


def follow(process, find, state_bytes):
    """What rank 0 says at last, with what the processes held and wrote meanwhile; None if it ended before."""
    held_before = written_before = peak = None
    found = {}
    try:
        for line in process.stdout:
            said = json.loads(line) if line.startswith("{") else {}
            moment = said.get("at")
            if moment == "start":
                held_before = usage.memory(find())
            elif moment == "before":
                written_before, peak = usage.written(find()), usage.Peak(find)
            elif moment == "after":
                found = {"memory": (peak.end() - held_before) / state_bytes,
                         "written": (usage.written(find()) - written_before) / state_bytes}
            elif "copy" in said:
                return {**said, **found}
            if moment:
                go_on(process)
    finally:
        if peak:
            peak.stop()  # a process that ended too early has not come to the moment "after"
    return None


def one_round(name, args):
    """One round of a way, or the reason why it could not run."""
    with place(name, args.dir) as directory, tempfile.TemporaryFile("w+") as errors:
        ranks = [start(name, args, directory, rank, errors) for rank in range(args.world)]
        pids = [rank.pid for rank in ranks]
        watch = threading.Timer(TIMEOUT_S, lambda: [rank.kill() for rank in ranks])
        watch.start()
        try:
            found = follow(ranks[0], lambda: usage.with_children(pids) | set(agent.processes(directory)),
                           args.world * args.state_mib << 20)
            codes = [rank.wait() for rank in ranks] if found else []
        finally:
            late = not watch.is_alive()
            watch.cancel()
            for rank in ranks:
                rank.kill()
                rank.wait()
        if found and not any(codes):
            return found
        errors.seek(0)
        lines = errors.read().strip().splitlines()
    return f"no end after {TIMEOUT_S} s" if late else (lines or ["no reason given"])[-1]


def order(names, number):
    """Every round begins with another way, and every second one goes backwards."""
    turned = names[number % len(names):] + names[:number % len(names)]
    return turned if number % 2 == 0 else turned[::-1]


def measure(names, args):
    """By way, its rounds, or why it could not run."""
    found = {name: [] for name in names}
    for number in range(args.rounds):
        for name in order(names, number):
            if isinstance(found[name], str):
                continue
            result = one_round(name, args)
            found[name] = result if isinstance(result, str) else [*found[name], result]
    return found


def report(family, found):
    """Prints all rows and returns them."""
    measured = {name: rounds for name, rounds in found.items() if not isinstance(rounds, str)}
    rows = []
    for name, rounds in found.items():
        rows += figures.rows(family, name, measured) if name in measured else [{"id": f"{family}.{name}", "error": rounds}]
    rows += figures.goals(family, measured)
    for row in rows:
        say(row)
    return rows


def draw(rows, path):
    if not is_installed("matplotlib"):
        print(f"without {path}: matplotlib is not installed", file=sys.stderr)
        return
    import plot
    plot.draw_rows(rows, path)
    print(f"drawn: {path}", file=sys.stderr)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS_MAX, help=f"at most {ROUNDS_MAX}")
    parser.add_argument("--dir", default=".")
    parser.add_argument("id", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--only", action="append", choices=sorted({*NAMES["cpu"], *NAMES["cuda"]}),
                        help="this one; may be given several times")
    parser.add_argument("--device", choices=FAMILIES, default="cpu", help="where the tensors are")
    parser.add_argument("--state-mib", type=int, help="of each rank")
    args = parser.parse_args()
    args.rounds, args.world = min(args.rounds, ROUNDS_MAX), WORLD[args.device]
    args.state_mib = args.state_mib or STATE_MIB[args.device]
    return args


def main():
    args = arguments()
    family = FAMILIES[args.device]
    if not is_installed("torch"):
        say({"id": family, "skipped": "torch is not installed: run deploy/try once"})
        return SKIPPED
    if args.device == "cuda" and not has_cuda():
        say({"id": family, "skipped": "no CUDA device"})
        return SKIPPED
    names = args.only or NAMES[args.device]
    missing = [name for name in names if name in NEEDS and not is_installed(NEEDS[name])]
    for name in missing:
        say({"id": f"{family}.{name}", "skipped": "it could not be installed here"})
    rows = report(family, measure([name for name in names if name not in missing], args))
    if args.device == "cpu":
        draw(rows, agent.BUILD / "peers.svg")
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
