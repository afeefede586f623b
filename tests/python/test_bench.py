# SPDX-License-Identifier: Apache-2.0
"""bench/run finds the Python interpreter that has PyTorch, installs what it compares with, knows each measure by its
name, and the benchmark of the Python part of a step runs."""

import json
import os
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest


@pytest.fixture
def bench(top, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader("bench_run", str(top / "bench/run"))
    module = module_from_spec(spec_from_loader("bench_run", loader))
    loader.exec_module(module)
    (tmp_path / "build/venv/bin").mkdir(parents=True)
    return module


def python(path, has_torch):
    """Creates a script that answers like an interpreter whether torch is installed."""
    path.write_text(f"#!/bin/sh\nexit {0 if has_torch else 1}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("here, made, chosen", [(True, True, "here"), (False, True, "made"), (False, False, "here")])
def test_environment_of_the_project_is_taken_if_this_one_has_no_torch(bench, tmp_path, monkeypatch, here, made, chosen):
    pythons = {"here": python(tmp_path / "python", here), "made": python(tmp_path / "build/venv/bin/python", made)}
    monkeypatch.setattr(sys, "executable", pythons["here"])
    assert bench.interpreter(tmp_path) == pythons[chosen]


def test_without_that_environment_it_is_this_one(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", python(tmp_path / "python", False))
    assert bench.interpreter(tmp_path) == sys.executable


@pytest.mark.parametrize("installed, chosen", [(True, "build/peers/bin/python"), (False, "python")])
def test_what_peers_compare_with_is_installed_and_else_skipped(bench, tmp_path, monkeypatch, installed, chosen, capfd):
    monkeypatch.setattr(sys, "executable", python(tmp_path / "python", True))
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/lib.sh").write_text(f"peers_environment() {{ echo tried; return {0 if installed else 1}; }}\n")
    assert bench.peers_interpreter(tmp_path, tmp_path) == str(tmp_path / chosen)
    assert (tmp_path / "bench-peers.log").read_text() == "tried\n"
    assert ("could not be installed" in capfd.readouterr().err) is not installed


@pytest.mark.parametrize("source", ["snapshot", "storage", "far_storage", "reshard", "restore", "replicate", "catalog",
                                    "objects", "scale", "gpu/gpu"])
def test_what_a_program_can_measure_alone_can_be_asked_for(bench, top, source):
    entries = re.findall(r'\{"([A-Za-z0-9_.]+)", bench_', (top / f"bench/{source}.c").read_text())
    assert entries and set(entries) <= set(bench.PROGRAMS[Path(source).name])


@pytest.mark.parametrize("wanted", ["G5.verified", "G5.cost"])
def test_a_part_of_a_measure_is_known_by_its_name(bench, monkeypatch, wanted):
    monkeypatch.setattr(sys, "argv", ["bench/run", wanted])
    assert bench.arguments().id == [wanted]
    monkeypatch.setattr(sys, "argv", ["bench/run"])
    assert wanted in bench.IDS and bench.arguments().id == []


def test_a_name_that_is_no_measure_is_refused_with_those_that_are(bench, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench/run", "G5.verifed"])
    with pytest.raises(SystemExit):
        bench.arguments()
    assert "no measure is called G5.verifed; there are: " in capsys.readouterr().err


def test_the_cost_of_the_save_call_can_be_measured(bench, top, tmp_path, site):
    build = Path(os.environ.get("TCK_BUILD", top / "build/release")).resolve()
    if not (build / "runtime/agent/tierckptd").exists():
        pytest.skip(f"no programs are built in {build}")
    environment = {**os.environ, "TIERCKPT_BUILD_DIR": str(build),
                   "TIERCKPT_BIN_DIR": str(bench.programs_dir(build, tmp_path))}
    done = subprocess.run([sys.executable, str(top / "bench/step.py"), "--rounds", "1", "--dir", str(site.dir)],
                          env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["id"] for row in rows] == bench.PROGRAMS["step"]
    assert all(row["value"] > 0 and row["reference_value"] > 0 for row in rows)
