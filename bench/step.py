# SPDX-License-Identifier: Apache-2.0
"""STEP: what the save call costs a training step in Python, in processor time of its thread. A call that finds nothing due
stands beside one small torch operation; a call that saves, and the part of it that Python does, beside one step of the
optimizer."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
import agent

SKIPPED = 77
LAYERS, WIDTH = 500, 32  # with weight and bias 1,000 parameters
CALLS = 20000
NOT_DUE, DUE, PYTHON = "STEP.not_due", "STEP.due", "STEP.due.python"


class Training:
    def __init__(self, torch, directory):
        import tierckpt
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        self.optimizer.step()
        keys = {**agent.overrides(directory), "save_mem_interval": 10**9, "memory_cap_bytes": "256MiB"}
        self.checkpoint = tierckpt.init(model=self.model, optimizer=self.optimizer, overrides=keys)
        self.small = torch.ones(1)
        self.number = 0

    def not_due(self):
        """Seconds of a call."""
        call, numbers = self.checkpoint.save_checkpoint_if_needed, range(self.number + 1, self.number + 1 + CALLS)
        begin = time.thread_time()
        for number in numbers:
            call(number)
        self.number += CALLS
        return (time.thread_time() - begin) / CALLS

    def operation(self):
        add, small = self.small.add, self.small
        begin = time.thread_time()
        for _ in range(CALLS):
            add(small)
        return (time.thread_time() - begin) / CALLS

    def due(self):
        self.checkpoint.fence()
        self.number += 1
        begin = time.thread_time()
        started = self.checkpoint.save_checkpoint(self.number)
        seconds = time.thread_time() - begin
        if not started:
            raise RuntimeError(started.reason)
        self.checkpoint.wait("committed")
        return seconds

    def python(self):
        """What the call does before it asks the library for a snapshot."""
        self.checkpoint.fence()
        begin = time.thread_time()
        obstacle = self.checkpoint._saving._take()
        seconds = time.thread_time() - begin
        if obstacle is not None:
            raise RuntimeError(obstacle)
        return seconds

    def optimizer_step(self):
        begin = time.thread_time()
        self.optimizer.step()
        return time.thread_time() - begin


def measure(ways, rounds):
    """Seconds of each way by round. Each round begins with another one."""
    times = {way: [] for way in ways}
    for way in ways:
        way()
    for number in range(rounds):
        for i in range(len(ways)):
            way = ways[(number + i) % len(ways)]
            times[way].append(way())
    return times


def row(name, what, ours, reference, text, unit, goal=None):
    ratios = [a / b for a, b in zip(ours, reference)]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    value, scale = statistics.median(ours) / statistics.median(reference), {"us": 1e6, "ms": 1e3}[unit]
    made = {"id": name, "what": f"{what} ({statistics.median(ours) * scale:.3g} {unit})", "unit": "ratio of time",
            "better": "less", "value": float(f"{value:.5g}"), "rounds": len(ours),
            "spread": float(f"{(high - low) / value:.4g}"), "reference": text,
            "reference_value": float(f"{statistics.median(reference) * scale:.5g}"), "reference_unit": unit}
    if goal is not None:
        made |= {"goal": goal, "met": value <= goal}
    print(json.dumps(made), flush=True)


def child(args):
    try:
        import torch
    except ImportError:
        print(json.dumps({"id": "STEP", "skipped": "torch is not installed, neither here nor in build/venv: run deploy/try "
                                                   "once"}), flush=True)
        return SKIPPED
    torch.set_num_threads(1)
    training = Training(torch, args.dir)
    if NOT_DUE in args.id:
        measure_not_due(training, args.rounds)
    if DUE in args.id or PYTHON in args.id:
        measure_due(training, args)
    training.checkpoint.close(job_done=False)
    return 0


def measure_not_due(training, rounds):
    not_due, operation = training.not_due, training.operation
    times = measure([not_due, operation], rounds)
    row(NOT_DUE, "save_checkpoint_if_needed of a step that is not due", times[not_due], times[operation],
        "one addition of two small tensors", "us", goal=5)


def measure_due(training, args):
    due, python, step = training.due, training.python, training.optimizer_step
    times = measure([due, python, step], args.rounds)
    what = f"a model of {2 * LAYERS} tensors and AdamW's state of them"
    text = "one fused step of the optimizer"
    if DUE in args.id:
        row(DUE, f"the call that saves {what}", times[due], times[step], text, "ms")
    if PYTHON in args.id:
        row(PYTHON, f"the part of this call that Python does, {what}", times[python], times[step], text, "ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dir", default=".")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("id", nargs="*", default=[NOT_DUE, DUE, PYTHON], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args)
    with tempfile.TemporaryDirectory(prefix="step.", dir=os.path.abspath(args.dir),
                                     ignore_cleanup_errors=True) as directory, agent.running(directory):
        command = [sys.executable, __file__, "--child", "--rounds", str(args.rounds), "--dir", directory, *args.id]
        return subprocess.run(command, env=agent.environment()).returncode


if __name__ == "__main__":
    sys.exit(main())
