# SPDX-License-Identifier: Apache-2.0
"""PEERS: other ways to save the same state, and ours, each as a ratio to a plain copy of its bytes. Runs each in
processes of its own under a virtual environment that has the peers; one that cannot be installed is skipped by name."""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import agent
from environment import environment, install

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS_MAX = 3  # a save of some of them takes seconds
TIMEOUT_S = 180
SKIPPED = 77
FAMILIES = {"cpu": "PEERS", "cuda": "GPU.stall"}
NEEDS = {"safetensors": "safetensors", "torch_checkpointing": "torch_checkpointing", "lm-resiliency": "lm_resiliency"}
WORLD = {"lm-resiliency": 2}
CUDA_NAMES = ["torch.save", "dcp.async.pinned", "tierckpt", "tierckpt.overlapped"]
NAMES = ["torch.save", "safetensors", "dcp.save", "dcp.async.thread", "dcp.async.process", "dcp.async.shared",
         "torch_checkpointing", "lm-resiliency", "tierckpt", "tierckpt.storage", "tierckpt.overlapped"]


def skip(family, name, why):
    print(json.dumps({"id": f"{family}.{name}" if name else family, "skipped": why}), flush=True)


def has_cuda(python):
    return subprocess.run([python, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


@contextlib.contextmanager
def place(name, parent):
    """The directory of one measure, with an agent in it if it is ours."""
    with tempfile.TemporaryDirectory(prefix="peer.", dir=os.path.abspath(parent), ignore_cleanup_errors=True) as path:
        with agent.running(path) if name.startswith("tierckpt") else contextlib.nullcontext():
            yield path


def measure(python, name, args, env):
    with place(name, args.dir) as directory:
        command = [python, HERE / "measure.py", name, "--rounds", str(min(args.rounds, ROUNDS_MAX)),
                   "--dir", directory, "--device", args.device]
        ranks = [subprocess.Popen([*command, "--rank", str(rank)], env=env, text=True, stderr=subprocess.PIPE,
                                  stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL)
                 for rank in range(WORLD.get(name, 1))]
        try:
            out, err = ranks[0].communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            out, err = "", f"no end after {TIMEOUT_S} s"
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    sys.stdout.write(out)
    sys.stdout.flush()
    if ranks[0].returncode != 0:
        why = (err.strip().splitlines() or ["no reason given"])[-1]
        print(json.dumps({"id": f"{FAMILIES[args.device]}.{name}", "error": why}), flush=True)
    return ranks[0].returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS_MAX)
    parser.add_argument("--dir", default=".")
    parser.add_argument("id", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--only", action="append", choices=sorted({*NAMES, *CUDA_NAMES}),
                        help="this one; may be given several times")
    parser.add_argument("--device", choices=FAMILIES, default="cpu", help="where the tensors are")
    args = parser.parse_args()
    family = FAMILIES[args.device]
    if importlib.util.find_spec("torch") is None:
        skip(family, "", "torch is not installed, neither here nor in build/venv: run deploy/try once")
        return SKIPPED
    if args.device == "cuda" and not has_cuda(sys.executable):
        skip(family, "", "no CUDA device")
        return SKIPPED
    python = environment(agent.BUILD) if args.device == "cpu" else sys.executable  # these need nothing more
    env = dict(agent.environment(), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", PYTHONWARNINGS="ignore")
    ok = True
    for name in args.only or (CUDA_NAMES if args.device == "cuda" else NAMES):
        if name in NEEDS and not install(python, name, NEEDS[name]):
            skip(family, name, "cannot be installed here")
            continue
        ok = measure(python, name, args, env) and ok
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
