# SPDX-License-Identifier: Apache-2.0
"""PEERS: other ways to save the same state, and ours, each as a ratio to a plain copy of its bytes. Runs each in
processes of its own under a virtual environment that has the peers; one that cannot be installed is skipped by name."""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
ROUNDS_MAX = 3  # a save of some of them takes seconds
TIMEOUT_S = 180
NEEDS = {"safetensors": "safetensors", "torch_checkpointing": "torch_checkpointing", "lm-resiliency": "lm_resiliency"}
WORLD = {"lm-resiliency": 2}
NAMES = ["torch.save", "safetensors", "dcp.save", "dcp.async.thread", "dcp.async.process", "dcp.async.shared",
         "torch_checkpointing", "lm-resiliency", "tierckpt", "tierckpt.storage", "tierckpt.overlapped"]


def skip(name, why):
    print(json.dumps({"id": f"PEERS.{name}" if name else "PEERS", "skipped": why}), flush=True)


def environment(build_dir):
    """The interpreter of a virtual environment beside the build that sees this one's torch."""
    home = build_dir / "bench-venv"
    python = home / "bin/python"
    if not python.exists():
        venv.create(home, system_site_packages=True, with_pip=True)
    return python


def has(python, module):
    return subprocess.run([python, "-c", f"import {module}"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def install(python, package, module):
    if not has(python, module):  # without dependencies: torch is here, and nothing may replace it
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", package], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
    return has(python, module)


def measure(python, name, rounds, parent, env):
    with tempfile.TemporaryDirectory(prefix="peer.", dir=os.path.abspath(parent), ignore_cleanup_errors=True) as directory:
        command = [python, HERE / "measure.py", name, "--rounds", str(rounds), "--dir", directory]
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
        print(json.dumps({"id": f"PEERS.{name}", "error": (err.strip().splitlines() or ["no reason given"])[-1]}),
              flush=True)
    return ranks[0].returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS_MAX)
    parser.add_argument("--dir", default=".")
    parser.add_argument("id", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--only", action="append", choices=NAMES, help="this one; may be given several times")
    args = parser.parse_args()
    build_dir = pathlib.Path(os.environ.get("TIERCKPT_BUILD_DIR", TOP / "build/release")).resolve()
    if importlib.util.find_spec("torch") is None:
        return skip("", "torch is not installed")
    python = environment(build_dir)
    env = dict(os.environ, PYTHONPATH=str(TOP / "python"), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
               PYTHONWARNINGS="ignore",
               TIERCKPT_LIBRARY=str(build_dir / "runtime/client/libtierckpt.so"))
    ok = True
    for name in args.only or NAMES:
        if name in NEEDS and not install(python, name, NEEDS[name]):
            skip(name, "cannot be installed here")
            continue
        ok = measure(python, name, min(args.rounds, ROUNDS_MAX), args.dir, env) and ok
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
