# SPDX-License-Identifier: Apache-2.0
"""Real DeepSpeed engines on two ranks: after a kill and a restart, every bit must equal that of an uninterrupted
run."""

import functools
import importlib.util
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import tierckpt
from harness import Job, run

if importlib.util.find_spec("deepspeed") is None:
    pytest.skip("deepspeed is not installed", allow_module_level=True)

NURSERY = "ds_training"
STEPS = 6
CPU_ADAM_LIMIT_S = 180
KINDS = ("z0-fp32", "z0-bf16", "z0-fp16", "z1-fp32", "z1-bf16", "z1-fp16", "z1-bf16-fp32grads", "z2-fp32", "z2-bf16",
         "z2-fp32-torchadam", "z2-bf16-offload", "z3-fp32", "z3-bf16", "z3-bf16-offload")


@pytest.fixture(scope="module")
def uninterrupted(nursery, tmp_path_factory):
    """A function of (kind, world) that returns [losses, digest] of each rank; each combination is run once."""
    @functools.cache
    def results(kind, world=2):
        ranks = run(tmp_path_factory.mktemp(kind), "ds_training:train", nursery=nursery, world=world, kind=kind,
                    steps=STEPS)
        return [rank[2:] for rank in ranks]

    return results


class Case:
    """One kind of engine, killed and restarted."""

    def __init__(self, nursery, tmp_path, kind, config, world=2, **arguments):
        self.tmp_path = tmp_path
        self.arguments = {"nursery": nursery, "world": world, "kind": kind, "steps": STEPS, "config": config,
                          **arguments}

    def killed(self, **arguments):
        with Job(self.tmp_path, "ds_training:train", **self.arguments, **arguments) as job:
            job.killed()

    def resume(self, expected):
        """Compares everything else, and returns [step resumed at, bytes by source] of each rank."""
        ranks = run(self.tmp_path, "ds_training:train", **self.arguments)
        for (resumed, _, losses, digest), (whole, last) in zip(ranks, expected, strict=True):
            assert losses == whole[resumed:]
            assert digest == last
        return [rank[:2] for rank in ranks]


def a_step(kind):
    return random.Random(kind).randint(2, STEPS - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_job_resumes_from_memory_with_equal_bits(nursery, tmp_path, site, uninterrupted, kind):
    case, step = Case(nursery, tmp_path, kind, site.config), a_step(kind)
    case.killed(die_at=step, in_flight=True)
    for resumed, source in case.resume(uninterrupted(kind)):
        assert resumed in (step - 1, step)
        assert source["bytes_local"] > 0


@pytest.mark.parametrize("kind", ["z0-fp32", "z2-fp32", "z3-bf16"])
def test_four_ranks_add_in_the_same_order_after_a_restart(nursery, tmp_path, site, uninterrupted, kind):
    case = Case(nursery, tmp_path, kind, site.config, world=4)
    case.killed(die_at=3)
    assert [resumed for resumed, _ in case.resume(uninterrupted(kind, 4))] == [3] * 4


@pytest.fixture(scope="module")
def cpu_adam():
    """DeepSpeedCPUAdam is a C++ extension, built once and kept in torch's cache. It takes a minute or so."""
    if shutil.which("c++") is None:
        pytest.skip("DeepSpeedCPUAdam needs a C++ compiler")
    began = time.time()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    build = "from deepspeed.ops.op_builder import CPUAdamBuilder; CPUAdamBuilder().load(verbose=False)"
    with subprocess.Popen([sys.executable, "-c", build], env={**os.environ, "PATH": path}, start_new_session=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            _, said = process.communicate(timeout=CPU_ADAM_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _remove_locks(since=began)
            pytest.skip(f"DeepSpeedCPUAdam was not built within {CPU_ADAM_LIMIT_S} s")
    if process.returncode != 0:
        pytest.skip(f"DeepSpeedCPUAdam cannot be built: {said[-500:]}")


def _remove_locks(since):
    """Removes the locks of a build that was ended: the next build would wait for them."""
    cache = Path(os.environ.get("TORCH_EXTENSIONS_DIR", Path.home() / ".cache/torch_extensions"))
    for lock in cache.glob("**/cpu_adam/lock"):
        if lock.stat().st_mtime >= since:
            lock.unlink()


@pytest.mark.parametrize("kind", ["z2-bf16-cpuadam", "z3-fp32-cpuadam"])
def test_the_optimizer_for_offload_resumes_with_equal_bits(nursery, tmp_path, site, uninterrupted, cpu_adam, kind):
    case = Case(nursery, tmp_path, kind, site.config)
    case.killed(die_at=3)
    assert [resumed for resumed, _ in case.resume(uninterrupted(kind))] == [3, 3]


@pytest.mark.parametrize("kind", ["z1-bf16", "z2-fp32", "z3-bf16"])
def test_published_parts_are_read_whole_by_the_names_of_parameters(nursery, tmp_path, site, kind):
    reference = tmp_path / "reference.pt"
    run(tmp_path, "ds_files:publish", nursery=nursery, world=2, kind=kind, config=site.config,
        reference=str(reference))
    with tierckpt.open_published(site.config) as version:
        for key, tensor in torch.load(reference).items():
            assert torch.equal(version.read(key), tensor.view(-1)), key
        shapes = json.loads(version.blob("rank0/tierckpt.optimizer")).get("shapes", {"words.weight": [31, 9]})
        assert version.read("words.weight").view(shapes["words.weight"]).dtype == version.dtype("words.weight")


@pytest.mark.parametrize("kind, source", [("z0-fp32", "bytes_twin"), ("z1-bf16", "bytes_peer"),
                                          ("z2-fp32", "bytes_peer"), ("z3-bf16", "bytes_peer")])
def test_lost_node_is_restored_from_the_other(nursery, tmp_path, site, uninterrupted, kind, source):
    config = {**site.config, "copies": 2}
    case = Case(nursery, tmp_path, kind, config, own_nodes=True)
    case.killed(die_at=3)
    site.kill_agents("node1")
    first, second = case.resume(uninterrupted(kind))
    assert first[0] == second[0] == 3
    assert first[1]["bytes_local"] > 0 and second[1]["bytes_local"] == 0 and second[1][source] > 0


@pytest.mark.parametrize("kind", ["z0-bf16", "z1-fp32", "z2-bf16", "z3-fp32"])
def test_agents_that_lose_their_memory_restore_from_storage(nursery, tmp_path, site, uninterrupted, kind):
    config = {**site.config, "save_mem_interval": "off"}
    case = Case(nursery, tmp_path, kind, config)
    case.killed(storage_at=4, die_at=5, in_flight=True)
    site.kill_agents()
    for resumed, source in case.resume(uninterrupted(kind)):
        assert resumed == 4
        assert source["bytes_storage"] > 0


@pytest.mark.parametrize("kind, before, now, after", [
    ("z0-bf16", 2, "z0-bf16", 3), ("z1-bf16", 2, "z2-bf16", 3), ("z2-fp32", 2, "z1-fp32", 2),
    ("z2-fp32", 3, "z2-fp32", 2), ("z3-bf16", 2, "z3-bf16", 3)])
def test_another_number_of_ranks_reads_what_is_on_storage(nursery, tmp_path, site, kind, before, now, after):
    arguments = {"nursery": nursery, "config": site.config}
    saved = run(tmp_path, "ds_files:save_to_storage", world=before, kind=kind, **arguments)
    site.kill_agents()
    results = run(tmp_path, "ds_files:load_and_go_on", world=after, kind=now, **arguments)
    assert [loaded for loaded, _, _ in results] == [saved[0]] * after
    assert all(math.isfinite(loss) for _, losses, _ in results for loss in losses)
    assert [last for _, _, last in results] == [4] * after


@pytest.mark.parametrize("kind, before, after, how", [
    ("z0-bf16", 2, 3, {"turned": True}), ("z1-bf16", 2, 3, {}), ("z2-fp32", 3, 2, {"some": True}),
    ("z3-bf16", 2, 3, {})])
def test_another_number_of_ranks_reads_onto_a_device_in_pieces(nursery, tmp_path, site, kind, before, after, how):
    """With a stand-in for the device."""
    arguments = {"nursery": nursery, "config": site.config}
    saved = run(tmp_path, "ds_files:save_to_storage", world=before, kind=kind, **arguments)
    site.kill_agents()
    for loaded, own, device in run(tmp_path, "ds_files:load_onto_device", world=after, kind=kind, piece_bytes=64,
                                   **arguments, **how):
        assert loaded == saved[0] and own
        assert device["largest"] <= 64 and device["copies"] > 2 * device["tensors"] > 6


# ---- DeepSpeed's own files


@pytest.mark.parametrize("kind", ["z1-bf16", "z3-fp32"])
def test_files_are_written_in_the_background_and_stock_deepspeed_loads_them(nursery, tmp_path, site, kind):
    directory = tmp_path / "files"
    results = run(tmp_path, "ds_files:save_aside", nursery=nursery, world=2, kind=kind, config=site.config,
                  directory=str(directory))
    for meanwhile, after, _ in results:
        assert meanwhile == ["global_step1"], "no `latest` before the files are durable"
        assert after == ["global_step1", "latest"]
    assert (directory / "latest").read_text() == "global_step1"
    assert not list(directory.rglob("*.partial"))
    loaded = run(tmp_path, "ds_files:load_stock", nursery=nursery, world=2, kind=kind, directory=str(directory))
    assert loaded == [digest for _, _, digest in results]


def test_latest_does_not_name_what_one_rank_could_not_write(nursery, tmp_path, site):
    directory = tmp_path / "files"
    results = run(tmp_path, "ds_files:fail_on_one_rank", nursery=nursery, world=2, kind="z2-bf16", config=site.config,
                  directory=str(directory))
    assert results == [["global_step1", "global_step3"]] * 2
    assert len(list(directory.glob("global_step*"))) == 3


# ---- storage_format framework


@pytest.fixture
def own_format(site, tmp_path):
    """A configuration whose storage has DeepSpeed's checkpoints, of every second step."""
    return {**site.config, "storage_format": "framework", "save_storage_interval": 2, "max_ckpt_num": 2}


def stock_files(site):
    assert list((site.dir / "save").rglob("v*.t*")) == [], "no version is published"
    directory, = (site.dir / "save").glob("*/deepspeed")
    return directory


def saved_in(directory):
    return sorted(path.name for path in directory.iterdir() if not path.name.endswith(".py"))


@pytest.mark.parametrize("kind", ["z0-fp32", "z1-bf16", "z1-fp16", "z3-bf16"])
def test_in_its_own_format_lost_memory_and_stock_deepspeed_go_on(nursery, tmp_path, site, own_format, uninterrupted,
                                                                 kind):
    case = Case(nursery, tmp_path, kind, own_format)
    case.killed(die_at=5, written=True)
    site.kill_agents()
    directory = stock_files(site)
    assert saved_in(directory) == ["global_step2", "global_step4", "latest"]
    plain = str(tmp_path / "plain")
    run(tmp_path, "ds_files:save_stock", nursery=nursery, world=2, kind=kind, directory=plain, steps=4)
    ours, own = (run(tmp_path, "ds_files:go_on_stock", nursery=nursery, world=2, kind=kind, directory=str(path))
                 for path in (directory, plain))
    assert ours == own and ours[0][0] == 4
    assert [resumed for resumed, _ in case.resume(uninterrupted(kind))] == [4, 4]
    assert saved_in(directory) == ["global_step4", "global_step6", "latest"]
    assert not list(directory.rglob("*.partial"))
    stock_files(site)


def test_in_its_own_format_memory_wins_if_it_is_newer(nursery, tmp_path, site, own_format, uninterrupted):
    case = Case(nursery, tmp_path, "z2-fp32", own_format)
    case.killed(die_at=5)
    for resumed, source in case.resume(uninterrupted("z2-fp32")):
        assert resumed == 5 and source["bytes_local"] > 0
    stock_files(site)


def test_in_its_own_format_other_ranks_go_on_as_stock_deepspeed_does(nursery, tmp_path, site, own_format):
    """DeepSpeed does that without ZeRO."""
    arguments = {"nursery": nursery, "kind": "z0-fp32"}
    Case(nursery, tmp_path, "z0-fp32", own_format).killed(die_at=5, written=True)
    site.kill_agents()
    directory = stock_files(site)
    stock = run(tmp_path, "ds_files:go_on_stock", world=4, directory=str(directory), **arguments)
    ours = run(tmp_path, "ds_training:train", world=4, steps=6, config=own_format, **arguments)
    assert [rank[0] for rank in ours] == [rank[0] for rank in stock] == [4] * 4
    for (_, _, losses, _), (_, _, _, of_stock) in zip(ours[2:], stock[2:], strict=True):  # generators are new there
        assert losses[0] == of_stock
    assert saved_in(directory) == ["global_step4", "global_step6", "latest"]


def test_in_its_own_format_what_one_rank_could_not_write_is_not_loaded(nursery, tmp_path, site, own_format):
    arguments = {"nursery": nursery, "world": 2, "kind": "z2-bf16", "config": own_format}
    ranks = run(tmp_path, "ds_files:own_format", steps=5, fail_at=4, **arguments)
    assert any("No space left on device" in line for line in ranks[1][2])
    directory = stock_files(site)
    assert (directory / "latest").read_text() == "global_step2"
    site.kill_agents()
    assert [rank[0] for rank in run(tmp_path, "ds_files:own_format", steps=6, **arguments)] == [2, 2]
    assert (directory / "latest").read_text() == "global_step6"
    assert saved_in(directory) == ["global_step4", "global_step6", "latest"]
    for step in (4, 6):
        names = {path.name for path in (directory / f"global_step{step}").iterdir()}
        assert {"tierckpt-rank0.pt", "tierckpt-rank1.pt"} < names


def test_in_its_own_format_what_a_kill_has_cut_off_is_deleted(nursery, tmp_path, site, own_format):
    """Here by hand: a directory that was begun and that `latest` has never named."""
    arguments = {"nursery": nursery, "world": 2, "kind": "z1-bf16", "config": own_format}
    run(tmp_path, "ds_files:own_format", steps=2, **arguments)
    directory = stock_files(site)
    for step, ours in ((3, True), (5, False)):
        (directory / f"global_step{step}").mkdir()
        if ours:
            (directory / f"global_step{step}" / ".tierckpt").touch()
    run(tmp_path, "ds_files:own_format", steps=6, **arguments)
    assert saved_in(directory) == ["global_step4", "global_step5", "global_step6", "latest"]


def test_in_its_own_format_save_last_says_whether_it_is_on_storage(nursery, tmp_path, site, own_format):
    arguments = {"nursery": nursery, "world": 2, "kind": "z1-bf16", "config": own_format, "last": True}
    ranks = run(tmp_path, "ds_files:own_format", steps=3, fail_at=3, **arguments)
    assert all("step 3 could not be written" in rank[1] for rank in ranks)
    ranks = run(tmp_path, "ds_files:own_format", steps=5, **arguments)
    assert [rank[:2] for rank in ranks] == [[3, None]] * 2, "the agents have kept it"
    assert (stock_files(site) / "latest").read_text() == "global_step5"


# ---- correct and incorrect use


def test_use_and_wrong_use(nursery, tmp_path, site):
    """Each function of ds_wrong is a separate case; they share the creation of engines."""
    results = run(tmp_path, "ds_wrong:check_all", nursery=nursery, world=2, config=site.config)
    assert results[0] == results[1]
    wrong = {case: verdict for case, verdict in results[0].items() if verdict != "ok"}
    assert not wrong, "\n".join(f"{case}: {verdict}" for case, verdict in wrong.items())


def test_example_continues_where_it_stopped(nursery, tmp_path, site, top):
    path = site.dir / "tierckpt.json"
    path.write_text(json.dumps(site.config))
    example = top / "python/examples/deepspeed_zero.py"

    def start(steps):
        return run(tmp_path, "ds_files:run_example", nursery=nursery, world=2, path=str(example),
                   arguments=["--steps", str(steps), "--stage", "3", "--tierckpt", str(path)])

    # A finished job leaves nothing in memory, so the first start publishes.
    site.config["save_storage_interval"] = 4
    path.write_text(json.dumps(site.config))
    first, second = start(4), start(6)
    assert [rank[:2] for rank in first] == [[None, 8]] * 2
    assert [rank[:2] for rank in second] == [[4, 12]] * 2
