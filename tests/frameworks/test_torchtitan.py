# SPDX-License-Identifier: Apache-2.0
"""TierckptManager in torchtitan's own Trainer, with FSDP2 over gloo."""

import functools
import json
import random
import shutil

import pytest

from harness import Job, run

pytest.importorskip("torchtitan", reason="torchtitan is not installed")

NURSERY = "titan_training"
STEPS = 6
PIECE = 1 << 16
TRAIN = "titan_training:train"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    """A function of world that returns the final state of each rank, without checkpoints; each is run once."""
    @functools.cache
    def results(world, parallel="{}", **arguments):
        tmp_path = tmp_path_factory.mktemp("uninterrupted")
        return run(tmp_path, TRAIN, world=world, nursery=nursery, dump=str(tmp_path / "dump"), steps=STEPS,
                   parallel=json.loads(parallel), **arguments)

    return results


@pytest.fixture
def job(tmp_path, site, nursery):
    """Runs trainings of one job: job.train(...), job.killed(...)."""
    settings = {key: value for key, value in site.config.items()
                if key not in ("save_mem_interval", "save_storage_interval", "save_dir")}

    class Runs:
        dump = tmp_path / "dump"
        arguments = {"dump": str(dump), "steps": STEPS, "settings": settings}

        def train(self, world, **arguments):
            return run(tmp_path, TRAIN, world=world, nursery=nursery, **{**self.arguments, **arguments})

        def killed(self, world, **arguments):
            with Job(tmp_path, TRAIN, world=world, nursery=nursery, **{**self.arguments, **arguments}) as job:
                job.killed()

    return Runs()


def assert_in_pieces(device):
    assert device["largest"] <= PIECE and device["copies"] > 2 * device["tensors"] > 20


def assert_equal(ranks, reference):
    resumed = ranks[0]["resumed"]
    assert [rank["losses"] for rank in ranks] == [rank["losses"][resumed:] for rank in reference]
    assert [rank["digest"] for rank in ranks] == [rank["digest"] for rank in reference]


@pytest.mark.parametrize("world, in_flight", [(1, False), (2, False), (2, True)])
def test_killed_and_restored_from_memory_ends_with_equal_bits(job, uninterrupted, world, in_flight):
    step = random.Random(world * 10 + in_flight).randint(2, STEPS - 1)
    sure = step - 1 if in_flight else step
    job.killed(world, die_at=step, sure=sure)
    ranks = job.train(world)
    assert all(sure <= rank["resumed"] <= step for rank in ranks)
    assert all(rank["source"]["bytes_local"] > 0 for rank in ranks)
    assert all(rank["stable"] for rank in ranks)
    assert_equal(ranks, uninterrupted(world))


def test_lost_node_is_restored_from_its_peer(job, site, uninterrupted):
    settings = {**job.arguments["settings"], "copies": 2}
    job.killed(2, die_at=4, settings=settings, own_nodes=True)
    site.kill_agents("node1")
    ranks = job.train(2, settings=settings, own_nodes=True)
    assert [rank["resumed"] for rank in ranks] == [4, 4]
    assert ranks[1]["source"]["bytes_local"] == 0 and ranks[1]["source"]["bytes_peer"] > 0
    assert_equal(ranks, uninterrupted(2))


@pytest.mark.parametrize("parallel", [{"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 2},
                                      {"tensor_parallel_degree": 2}], ids=["hsdp", "fsdp-tp"])
def test_meshes_of_two_dimensions(job, uninterrupted, parallel):
    """Replicated shards, and shards in two dimensions."""
    arguments = {"parallel": parallel, "settings": {**job.arguments["settings"], "memory_cap_bytes": "1GiB"}}
    job.killed(4, die_at=3, **arguments)
    ranks = job.train(4, **arguments)
    assert [rank["resumed"] for rank in ranks] == [3] * 4
    assert_equal(ranks, uninterrupted(4, json.dumps(parallel)))


def pipeline(schedule="1F1B"):
    return {"pipeline_parallel_degree": 2, "pipeline_parallel_schedule": schedule,
            "pipeline_parallel_first_stage_less_layers": 0, "pipeline_parallel_last_stage_less_layers": 0}


@pytest.mark.parametrize("world, schedule, layers", [(2, "1F1B", 2), (2, "Interleaved1F1B", 4), (4, "1F1B", 2)])
def test_stages_of_a_pipeline(job, uninterrupted, world, schedule, layers):
    """One stage per rank, two stages per rank, and sharded stages."""
    parallel = pipeline(schedule)
    arguments = {"parallel": parallel, "layers": layers,
                 "settings": {**job.arguments["settings"], "memory_cap_bytes": "1GiB"}}
    job.killed(world, die_at=3, **arguments)
    ranks = job.train(world, **arguments)
    assert [rank["resumed"] for rank in ranks] == [3] * world
    assert_equal(ranks, uninterrupted(world, json.dumps(parallel), layers=layers))


def test_from_storage(job, site, uninterrupted):
    job.killed(2, die_at=3, sure=2, stage="drained", interval=2)
    site.kill_agents()
    ranks = job.train(2)
    assert [rank["resumed"] for rank in ranks] == [2, 2]
    assert all(rank["source"]["bytes_storage"] > 0 for rank in ranks)
    assert_equal(ranks, uninterrupted(2))


def test_another_number_of_ranks_reads_what_is_on_storage(job, site):
    """It also continues to save, and the first number of ranks then reads that version."""
    saved = job.train(2, steps=2)
    for world, steps in ((4, 3), (1, 4), (2, 5)):
        site.kill_agents()
        ranks = job.train(world, steps=steps)
        assert [rank["resumed"] for rank in ranks] == [steps - 1] * world
        assert [rank["loaded"] for rank in ranks] == [saved[0]["whole"]] * world
        assert all(rank["source"]["bytes_storage"] > 0 for rank in ranks), "the library has read it"
        assert any("is read for this number of ranks" in line for line in ranks[0]["log"])
        saved = ranks


@pytest.mark.parametrize("world, on_device", [(4, {}), (1, {"turned": True}), (4, {"some": True})],
                         ids=["4", "turned", "some"])
def test_another_number_of_ranks_reads_onto_a_device_in_pieces(job, site, world, on_device):
    """With a stand-in for the device. The training then goes on with what was read."""
    saved = job.train(2, steps=2)
    site.kill_agents()
    ranks = job.train(world, steps=3, on_device={"piece_bytes": PIECE, **on_device})
    assert [rank["resumed"] for rank in ranks] == [2] * world
    assert [rank["loaded"] for rank in ranks] == [saved[0]["whole"]] * world
    for rank in ranks:
        assert_in_pieces(rank["device"])
        assert rank["others_loaded"] == saved[0]["others"] and rank["own"]
        assert rank["source"] is None, "the adapter has read it"


class _Loader:
    """Its state has the same form as that of torchtitan's own data loaders."""

    def __init__(self, rank, degree):
        self._rank, self._degree = rank, degree

    def state_dict(self):
        return {f"dp_rank_{self._rank}": b"position", "world_size": self._degree}


def _choice(rank, degree, saved, excluded=()):
    """Returns what a rank loads of the states that other ranks have saved: a state, or the error."""
    import torchtitan_cpu  # noqa: F401
    from tierckpt import LayoutError
    from tierckpt.adapters.torchtitan_state import OtherStates

    states = OtherStates({"dataloader": _Loader(rank, degree)})
    with states.without(excluded):
        chosen = states.choose(iter(saved))
        try:
            states.fits(chosen)
        except LayoutError as error:
            return str(error)
    return chosen


def test_a_dataloader_gets_the_state_of_its_data_parallel_rank_or_is_refused():
    two = [{"dataloader": _Loader(rank, 2).state_dict(), "step": 4} for rank in range(2)]
    assert _choice(1, 2, two) is two[1] and _choice(0, 2, two) is two[0]
    assert "dataloader was saved by 2 data-parallel ranks, there are 4 now" in _choice(3, 4, two)
    assert "exclude_from_loading" in _choice(0, 1, two)
    assert _choice(3, 4, two, excluded=["dataloader"]) is two[0]
    assert "is not that of dp_rank_1" in _choice(1, 2, two[:1])
    assert _choice(1, 2, [{"step": 4}]) == {"step": 4}


def test_stages_split_in_another_way_read_what_is_on_storage(job, site):
    """Without a pipeline, with two stages per rank, and with one sharded stage: each loads the version of the one
    before."""
    one, two = pipeline(), pipeline("Interleaved1F1B")
    saved = job.train(2, steps=2, layers=4, parallel=one)
    cuts = ((2, two), (2, one), (1, {}), (2, two), (4, one), (2, {}))
    for steps, (world, parallel) in enumerate(cuts, 3):
        site.kill_agents()
        ranks = job.train(world, steps=steps, layers=4, parallel=parallel)
        assert [rank["resumed"] for rank in ranks] == [steps - 1] * world
        assert joined(ranks, "loaded") == joined(saved, "whole")
        saved = ranks


def joined(ranks, what):
    """Merges the digests of all ranks; those of the same parameter must be equal."""
    parts = {}
    for rank in ranks:
        assert all(parts.setdefault(name, digest) == digest for name, digest in rank[what].items())
    return parts


def test_steps_that_are_kept_and_one_of_them_loaded(tmp_path, job, site, nursery):
    """keep_latest_k, interval, enable_first_step_checkpoint, async_mode disabled, load_step, exclude_from_loading."""
    job.train(1, steps=5, interval=2, keep_latest_k=0, enable_first_step_checkpoint=True, async_mode="disabled")
    versions = job.dump / "checkpoint" / "test"
    assert sorted(path.name for path in versions.glob("v*")) == [f"v{step:012}.t1" for step in (1, 2, 4, 5)]
    arguments = {"nursery": nursery, "dump": str(job.dump), "steps": 5, "settings": job.arguments["settings"]}
    assert run(tmp_path, "titan_training:excluded", keys=["optimizer", "dataloader"], **arguments) == [[5, 0, True]]
    site.kill_agents()  # otherwise they keep the configuration that they were started with
    ranks = job.train(1, load_step=2, keep_latest_k=2, interval=2)
    assert ranks[0]["resumed"] == 2
    # Two versions of the history that continued from step 2. Steps 4 and 5 are not its ancestors, so they stay.
    assert [path.name for path in sorted(versions.glob("v*.t1"))] == [f"v{step:012}.t1" for step in (4, 5)]
    assert [path.name[:13] for path in sorted(versions.glob("v*")) if path.suffix != ".t1"] == \
        [f"v{step:012}" for step in (4, 6)]


def test_a_disabled_async_mode_has_committed_when_save_returns(job, uninterrupted):
    job.killed(2, die_at=3, sure=-1, async_mode="disabled")
    ranks = job.train(2, async_mode="async")
    assert [rank["resumed"] for rank in ranks] == [3, 3]
    assert_equal(ranks, uninterrupted(2))


def test_the_last_save_has_weights_alone_and_the_initial_load_is_torchtitans(tmp_path, job, nursery):
    """torchtitan's own manager does what only it can do."""
    job.train(2, steps=2, last_save_model_only=True, export_dtype="bfloat16")
    last = job.dump / "checkpoint/step-2"
    assert run(tmp_path, "titan_training:dtypes", nursery=nursery, path=str(last)) == [[["torch.bfloat16"], False]]
    other = tmp_path / "other"
    stock = job.train(2, steps=2, dump=str(other), stock=True, interval=1)
    ranks = job.train(2, dump=str(tmp_path / "third"), initial_load_path=str(other / "checkpoint/step-2"),
                      settings={**job.arguments["settings"], "job": "third"})  # the node remembers commits by job name
    assert [rank["resumed"] for rank in ranks] == [2, 2]
    assert [rank["loaded"] for rank in ranks] == [rank["whole"] for rank in stock]


def test_unknown_version_trains_without_tierckpt(tmp_path, job, nursery, uninterrupted):
    ranks = run(tmp_path, "titan_training:unknown_version", nursery=nursery, **job.arguments)
    assert_equal(ranks, uninterrupted(1))
    assert len(ranks[0]["log"]) == 1
    assert "tierckpt.torchtitan is off" in ranks[0]["log"][0] and "_save" in ranks[0]["log"][0]


def test_wrong_use_says_what_to_do(tmp_path, job, nursery):
    (settings, excluded, missing), = run(tmp_path, "titan_training:wrong_use", nursery=nursery, dump=str(job.dump),
                                         settings=job.arguments["settings"])
    assert "save_mem_interval is set by torchtitan's checkpoint keys" in settings
    assert excluded == "ValueError: nothing not found in state_dict."
    assert missing.startswith("FileNotFoundError: ") and "9 not found" in missing


def test_the_example_continues_where_it_stopped(tmp_path, site, top, nursery):
    example = {"path": str(top / "python/examples"), "runtime_dir": str(site.dir / "run"),
               "dump": str(tmp_path / "dump")}
    for steps, resumed in ((2, 0), (3, 2)):
        ranks = run(tmp_path, "titan_training:example", world=2, nursery=nursery, steps=steps, **example)
        assert ranks == [resumed] * 2


# ---- storage_format dcp


@pytest.fixture
def in_dcp(job):
    """Arguments of a training whose versions are checkpoints of torchtitan, too."""
    return {"settings": {**job.arguments["settings"], "storage_format": "dcp"}}


def steps_in(job):
    return sorted(path.name for path in (job.dump / "checkpoint").glob("step-*"))


@pytest.mark.parametrize("world, parallel", [(1, {}), (2, {}), (4, {"tensor_parallel_degree": 2})],
                         ids=["1", "fsdp", "fsdp-tp"])
def test_stock_torchtitan_resumes_from_what_was_published(tmp_path, job, nursery, in_dcp, world, parallel):
    """As from a checkpoint that it has written itself: it restores no generators, on which this training depends."""
    arguments = {"parallel": parallel, "settings": {**in_dcp["settings"], "memory_cap_bytes": "1GiB"}}
    job.train(world, steps=4, interval=2, **arguments)
    assert steps_in(job) == ["step-2", "step-4"]
    stock = {**job.arguments, "settings": None, "stock": True, "interval": 4, "dump": str(tmp_path / "stock")}
    run(tmp_path, TRAIN, world=world, nursery=nursery, **{**stock, "steps": 4, "parallel": parallel})
    expected = run(tmp_path, TRAIN, world=world, nursery=nursery, **{**stock, "parallel": parallel})
    resumed = run(tmp_path, TRAIN, world=world, nursery=nursery, **{**stock, "dump": str(job.dump),
                                                                    "parallel": parallel})
    assert [rank["resumed"] for rank in resumed] == [4] * world
    for key in ("loaded", "losses", "digest", "whole"):
        assert [rank[key] for rank in resumed] == [rank[key] for rank in expected], key


def test_directories_of_steps_go_with_their_versions_and_are_made_at_the_next_start(job, in_dcp):
    arguments = {**in_dcp, "interval": 1, "keep_latest_k": 2}
    job.train(1, steps=4, **arguments)
    versions = sorted((job.dump / "checkpoint/test").glob("v*"))
    assert len(versions) == 2 and steps_in(job) == ["step-3", "step-4"]
    for version, step in zip(versions, (3, 4), strict=True):
        for path in (job.dump / f"checkpoint/step-{step}").iterdir():
            assert path.samefile(version / path.name), "its bytes are there once"
    shutil.rmtree(job.dump / "checkpoint/step-4")
    (job.dump / "checkpoint/step-99").mkdir()
    ranks = job.train(1, steps=5, **arguments)
    assert ranks[0]["resumed"] == 4
    assert steps_in(job) == ["step-4", "step-5", "step-99"]


def test_our_own_restores_of_such_versions(job, site, in_dcp, uninterrupted):
    job.killed(2, die_at=3, sure=2, stage="drained", interval=2, **in_dcp)
    ranks = job.train(2, **in_dcp)
    assert ranks[0]["resumed"] >= 2 and ranks[0]["source"]["bytes_local"] > 0
    assert_equal(ranks, uninterrupted(2))


def test_another_number_of_ranks_reads_such_versions(job, site, in_dcp):
    saved = job.train(2, steps=2, **in_dcp)
    site.kill_agents()
    read = job.train(1, steps=2, exclude_from_loading=["dataloader"], **in_dcp)
    assert read[0]["loaded"] == saved[0]["whole"]


def test_the_format_may_change_between_starts(job, site, in_dcp, uninterrupted):
    """What only memory has in the other one is published first."""
    job.killed(2, die_at=2)
    job.killed(2, die_at=4, **in_dcp)
    ranks = job.train(2)
    assert [rank["resumed"] for rank in ranks] == [4, 4]
    assert_equal(ranks, uninterrupted(2))
