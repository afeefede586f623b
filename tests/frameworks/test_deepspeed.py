# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed, real engines on two ranks: killed, started again, and every bit as if it had not been."""

import functools
import json
import random

import pytest
from harness import Job, Nursery, run

pytest.importorskip("deepspeed", reason="deepspeed is not installed")

STEPS = 6
KINDS = ("z0-fp32", "z0-bf16", "z0-fp16", "z1-fp32", "z1-bf16", "z1-fp16", "z1-bf16-fp32grads", "z2-fp32", "z2-bf16",
         "z2-fp32-torchadam", "z2-bf16-offload", "z3-fp32", "z3-bf16", "z3-bf16-offload")


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    with Nursery(tmp_path_factory.mktemp("nursery"), "ds_training") as nursery:
        yield nursery


@pytest.fixture(scope="module")
def uninterrupted(nursery, tmp_path_factory):
    """kind -> [losses, digest] of each rank; each is run once."""
    @functools.cache
    def results(kind):
        ranks = run(tmp_path_factory.mktemp(kind), "ds_training:train", nursery=nursery, world=2, kind=kind,
                    steps=STEPS)
        return [rank[2:] for rank in ranks]

    return results


class Case:
    """One kind of engine, killed and started again."""

    def __init__(self, nursery, tmp_path, kind, config, **arguments):
        self.tmp_path = tmp_path
        self.arguments = {"nursery": nursery, "world": 2, "kind": kind, "steps": STEPS, "config": config, **arguments}

    def killed(self, **arguments):
        with Job(self.tmp_path, "ds_training:train", **self.arguments, **arguments) as job:
            job.killed()

    def resume(self, expected):
        """Returns [step resumed at, bytes by source] of each rank, after the comparison of everything else."""
        ranks = run(self.tmp_path, "ds_training:train", **self.arguments)
        for (resumed, _, losses, digest), (whole, last) in zip(ranks, expected):
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


@pytest.mark.parametrize("kind, source", [("z0-fp32", "bytes_twin"), ("z1-bf16", "bytes_peer"),
                                          ("z2-fp32", "bytes_peer"), ("z3-bf16", "bytes_peer")])
def test_lost_node_is_made_good_from_the_other(nursery, tmp_path, site, uninterrupted, kind, source):
    config = {**site.config, "copies": 2}
    case = Case(nursery, tmp_path, kind, config, own_nodes=True)
    case.killed(die_at=3)
    site.kill_agents("node1")
    first, second = case.resume(uninterrupted(kind))
    assert first[0] == second[0] == 3
    assert first[1]["bytes_local"] > 0 and second[1]["bytes_local"] == 0 and second[1][source] > 0


@pytest.mark.parametrize("kind", ["z0-bf16", "z1-fp32", "z2-bf16", "z3-fp32"])
def test_agents_that_lose_their_memory_have_it_from_storage(nursery, tmp_path, site, uninterrupted, kind):
    config = {**site.config, "save_mem_interval": "off"}
    case = Case(nursery, tmp_path, kind, config)
    case.killed(storage_at=4, die_at=5, in_flight=True)
    site.kill_agents()
    for resumed, source in case.resume(uninterrupted(kind)):
        assert resumed == 4
        assert source["bytes_storage"] > 0


# ---- DeepSpeed's own files


@pytest.mark.parametrize("kind", ["z1-bf16", "z3-fp32"])
def test_files_are_written_aside_and_stock_deepspeed_loads_them(nursery, tmp_path, site, kind):
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


# ---- use and wrong use


def test_use_and_wrong_use(nursery, tmp_path, site):
    """Each function of ds_wrong is a case of its own; they share the making of engines."""
    results = run(tmp_path, "ds_wrong:check_all", nursery=nursery, world=2, config=site.config)
    assert results[0] == results[1]
    wrong = {case: verdict for case, verdict in results[0].items() if verdict != "ok"}
    assert not wrong, "\n".join(f"{case}: {verdict}" for case, verdict in wrong.items())


def test_example_goes_on_where_it_was(nursery, tmp_path, site, top):
    path = site.dir / "tierckpt.json"
    path.write_text(json.dumps(site.config))
    example = top / "python/examples/deepspeed_zero.py"

    def start(steps):
        return run(tmp_path, "ds_files:run_example", nursery=nursery, world=2, path=str(example),
                   arguments=["--steps", str(steps), "--stage", "3", "--tierckpt", str(path)])

    # A job that is done leaves nothing in memory, so the first start publishes.
    site.config["save_storage_interval"] = 4
    path.write_text(json.dumps(site.config))
    first, second = start(4), start(6)
    assert [rank[:2] for rank in first] == [[None, 8]] * 2
    assert [rank[:2] for rank in second] == [[4, 12]] * 2
