# SPDX-License-Identifier: Apache-2.0
"""The demonstration: trainings that lose nodes and continue from memory, compared bit by bit with undisturbed ones."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import stat
import sys
import tempfile
import time

import account
import compare
import network
import parts
import run as runs
import slurm_cluster
import slurm_job
import slurm_part

LOG_TAIL = 25


def parse_arguments():
    names = ",".join(part.name for part in parts.PARTS)
    text = "\n".join(f"  {part.name}  {part.title}" for part in parts.PARTS)
    parser = argparse.ArgumentParser(
        prog="deploy/try",
        description=f"{__doc__}\n\nparts:\n{text}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--part", default=names, metavar="A,B", help=f"only these parts (default {names})")
    parser.add_argument("--json", metavar="FILE", help="write the accounts there")
    parser.add_argument("--keep", metavar="DIR", help="keep logs, configurations and reports of all trainers there")
    parser.add_argument("--loopback", action="store_true", help="make no network namespaces even where it is allowed")
    parser.add_argument(
        "--steps", type=int, default=parts.STEPS, metavar="N", help=f"length of the trainings (default {parts.STEPS})"
    )
    parser.add_argument("--slurm", action="store_true", help=f"only this: {slurm_part.PART.title}")
    args = parser.parse_args()
    args.part = args.part.split(",")
    unknown = set(args.part) - {part.name for part in parts.PARTS}
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))} (there are {names})")
    lacking = slurm_cluster.missing() if args.slurm else []
    if lacking:
        parser.error(f"not installed: {', '.join(lacking)} (Debian: {slurm_cluster.PACKAGES}); deploy/try --slurm unpacks them")
    if args.steps < parts.STEPS_MIN:
        parser.error(f"--steps must be at least {parts.STEPS_MIN}")
    return args


class Demonstration:
    """Runs parts one after the other below one temporary directory; the references are computed once per mode."""

    def __init__(self, make_network, directory, steps):
        self._steps = steps
        self._make_network = make_network
        self._directory = directory
        self._started = time.monotonic()
        self._references = {}

    def say(self, text):
        print(f"{time.monotonic() - self._started:7.1f} s  {text}", flush=True)

    def _run(self, name, mode, config=None, **make):
        return runs.Run(self._make_network, self._directory / name, mode, self._steps, self.say, config, **make)

    def reference(self, mode):
        if mode not in self._references:
            self.say(f"Reference: {mode}, {self._steps} steps, nothing is lost and nothing is saved")
            with self._run(f"reference-{mode}", mode) as run:
                run.start("n1", "n2")
                run.until_final()
                self._references[mode] = {**compare.outcome(run), "step_ms": account.step_ms(run)}
        return self._references[mode]

    def part(self, part):
        return self._part(part, lambda run: run.start("n1", "n2"))

    def slurm(self):
        part = slurm_part.PART
        return self._part(part, lambda run: slurm_part.start(run, self.say), make_job=slurm_job.SlurmJob)

    def _part(self, part, start, **make):
        reference = self.reference(part.mode)
        self.say(f"Part {part.name}: {part.title}")
        config = {**parts.CONFIG, "save_dir": str(self._directory / part.name / "storage"), **part.config}
        with self._run(part.name, part.mode, config, **make) as run:
            start(run)
            run.until_step(parts.fail_at(self._steps))
            loss = part.fail(run, self.say)
            result = account.take(part, run, loss, reference, compare.differences(run, reference))
        print("", *account.lines(result), "", sep="\n", flush=True)
        return result


def show_logs(directory):
    """The ends of the logs of the run that failed: of launchers with their trainers, and of agents."""
    newest = max((path for path in directory.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in sorted([*newest.glob("*.log"), *newest.rglob("agent.log"), *newest.rglob("supervisor.log")]):
        tail = path.read_text(errors="replace").splitlines()[-LOG_TAIL:]
        print(f"--- {path}", *tail, sep="\n")


def demonstrate(args, make_network, directory):
    demonstration = Demonstration(make_network, directory, args.steps)
    results = []
    try:
        if args.slurm:
            results.append(demonstration.slurm())
        for part in parts.PARTS:
            if part.name in args.part and not args.slurm:
                results.append(demonstration.part(part))
    except (runs.DemoError, slurm_cluster.ClusterError) as error:
        demonstration.say(f"FAILED: {error}")
        show_logs(directory)
        return results, False
    finally:
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps({"parts": results}, indent=2) + "\n")
    return results, all(result["bit_equal"] for result in results)


def interrupt(number, _frame):
    raise KeyboardInterrupt(signal.Signals(number).name)


def main():
    args = parse_arguments()
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)
    make_network, reason = network.choose(args.loopback or args.slurm)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="tierckpt-"))
    passed = interrupted = False
    try:
        print(f"Nodes are {make_network.name}" + (f" ({reason})" if reason else ""), flush=True)
        results, passed = demonstrate(args, make_network, directory)
        for result in results:
            verdict = "bit-equal" if result["bit_equal"] else "NOT bit-equal"
            print(f"part {result['name']}: {verdict}, {result['title']}")
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted: cleaning up", flush=True)
    finally:
        keep(directory, args.keep, passed or interrupted)
    sys.exit(0 if passed else 1)


def _sockets(directory, names):
    """What cannot be copied."""
    return [name for name in names if stat.S_ISSOCK(os.lstat(os.path.join(directory, name)).st_mode)]


def keep(directory, wanted, expected):
    """Logs stay where the user wants them, or where they are after a failure; else everything goes."""
    if wanted:
        shutil.copytree(directory, wanted, dirs_exist_ok=True, ignore=_sockets)
        print(f"logs are in {wanted}")
    elif not expected:
        print(f"logs are in {directory}")
        return
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
