# SPDX-License-Identifier: Apache-2.0
"""G4: what copies to a peer and drains cost the steps of a training whose all-reduce uses the same link. Two ranks in
network namespaces are joined by a shaped link. Windows of steps with saves and without alternate at random in pairs;
a pair's sample is the mean step of the first, less the time that saves stalled it, divided by that of the second, less 1.
Jobs with target_inflation 0 and jobs with its default alternate, a few pairs each."""

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

SKIPPED = 77
RATE = "2gbit"
MIB, COMPUTE_MS, REDUCE_KB, EVERY, SAVES = 64, 90, 15000, 20, 3
TARGETS = [0, 0.01]
PAIRS_LEAST = 15  # fewer say nothing of 1 %
TARGET, UNPACED = 1, 20  # %: at most, and what copies have to cost without pacing so that the first says something
PAIRS_PER_JOB = 5
T_975 = [0, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
         2.120, 2.110, 2.101, 2.093, 2.086]


class Net:
    """Two namespaces, one link."""

    def __init__(self):
        self.names = [f"tckp{os.getpid()}{n}" for n in "ab"]

    def __enter__(self):
        a, b = self.names
        commands = [f"ip netns add {a}", f"ip netns add {b}",
                    f"ip -n {a} link add net0 type veth peer name net0 netns {b}"]
        for number, name in enumerate(self.names, 1):
            commands += [f"ip -n {name} link set lo up", f"ip -n {name} address add 10.88.0.{number}/24 dev net0",
                         f"ip -n {name} link set net0 up",
                         f"tc -n {name} qdisc add dev net0 root tbf rate {RATE} burst 512kb latency 50ms"]
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True)
            if done.returncode != 0:
                self.__exit__()
                print(json.dumps({"id": "G4", "skipped": f"{command}: {done.stderr.strip()}"}))
                sys.exit(SKIPPED)
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


def config(directory, node, target):
    return {"job": "pace", "node": f"n{node}", "runtime_dir": f"{directory}/run", "save_dir": f"{directory}/save",
            "memory_cap_bytes": "3GiB", "linger_s": 1, "save_mem_interval": 0, "save_storage_interval": 0,
            "net_device": "net0", "max_ckpt_num": 1, "log_level": 2, "target_inflation": target}


def train(net, directory, target, pairs, seed):
    """The steps of rank 0."""
    program = pathlib.Path(os.environ["TIERCKPT_BUILD_DIR"], "bench/bench_pace")
    pathlib.Path(directory, "save").mkdir()
    ranks = []
    for rank, name in enumerate(net.names):
        numbers = ",".join(map(str, (rank, MIB, COMPUTE_MS, REDUCE_KB, pairs, EVERY, SAVES, seed)))
        command = ["ip", "netns", "exec", name, program, numbers, "10.88.0.1",
                   json.dumps(config(directory, rank, target))]
        out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        ranks.append(subprocess.Popen(command, stdout=out, text=True))
    lines = ranks[0].communicate()[0].splitlines()
    ranks[1].wait()
    if any(r.returncode for r in ranks):
        raise RuntimeError(f"the ranks ended with {[r.returncode for r in ranks]}, after the line {lines[-1:]}")
    return [json.loads(line) for line in lines]


def net_ms(step):
    return step["ms"] - step["stall_ms"]


def samples(steps, only_copying):
    """One per pair."""
    out = []
    for pair in sorted({s["pair"] for s in steps} - {0}):
        base = [net_ms(s) for s in steps if s["pair"] == pair and s["window"] == "without" and not s["copying"]]
        cost = [net_ms(s) for s in steps if s["pair"] == pair and s["window"] == "with" and
                (s["copying"] or not only_copying)]
        if base and cost:
            out.append(statistics.mean(cost) / statistics.mean(base) - 1)
    return out


def interval(values):
    half = T_975[min(len(values) - 1, 20)] * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.mean(values)
    return mean, mean - half, mean + half


def row(what, values, reference=None, **goal):
    """`goal`: the keys goal and better."""
    mean, low, high = interval(values)
    out = {"id": "G4", "what": f"{what}; 95 %: {low:.2%} to {high:.2%}", "unit": "%", "value": 100 * mean,
           "spread": (high - low) / 2 / abs(mean) if mean else 0, "better": "less", "rounds": len(values), **goal}
    if goal:
        out["met"] = 100 * mean <= out["goal"] if out["better"] == "less" else 100 * mean >= out["goal"]
    if reference is not None:
        out.update(reference="not throttled", reference_value=round(100 * statistics.mean(reference), 3),
                   reference_unit="%")
    print(json.dumps(out), flush=True)


def measure(directory, pairs):
    """Samples of the steps while something is copied, and of all steps, by target."""
    copying, every = {t: [] for t in TARGETS}, {t: [] for t in TARGETS}
    with Net() as net:
        while len(every[TARGETS[-1]]) < pairs:
            for target in random.sample(TARGETS, len(TARGETS)):
                with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as place:
                    steps = train(net, place, target, PAIRS_PER_JOB, random.randrange(1, 1 << 30))
                copying[target] += samples(steps, True)
                every[target] += samples(steps, False)
    return copying, every


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=PAIRS_LEAST, help=f"pairs of windows of each, at least {PAIRS_LEAST}")
    parser.add_argument("--dir", required=True)
    parser.add_argument("id", nargs="*")
    args = parser.parse_args()
    if os.geteuid() != 0:
        print(json.dumps({"id": "G4", "skipped": "network namespaces need root"}))
        return SKIPPED
    copying, every = measure(args.dir, max(args.rounds, PAIRS_LEAST))
    row("steps while copies and drains run, not throttled", copying[0], goal=UNPACED, better="more")
    row("steps while copies and drains run", copying[0.01], copying[0], goal=TARGET)
    row("all steps of a training that saves, not throttled", every[0])
    row("all steps of a training that saves", every[0.01], every[0], goal=TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
