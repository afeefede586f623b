# SPDX-License-Identifier: Apache-2.0
"""Tests the real pretrain_gpt.py with `import tierckpt.megatron.hook`, if $MEGATRON_LM names a source tree of
Megatron-LM, a tag from core_v0.16.1 to core_v0.19.0 (the package megatron-core has no training program)."""

import functools
import importlib.util
import json
import os
import pickle
import random
import types
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from harness import Job, run

if importlib.util.find_spec("megatron") is None:
    pytest.skip("megatron-core is not installed", allow_module_level=True)
if not (Path(os.environ.get("MEGATRON_LM", "")) / "pretrain_gpt.py").is_file():
    pytest.skip("MEGATRON_LM does not name a source tree of Megatron-LM", allow_module_level=True)

NURSERY = "megatron_lm"
STEPS = 6
DISTRIBUTED = "--use-distributed-optimizer"
OVERLAP = f"{DISTRIBUTED} --bf16 --overlap-grad-reduce --overlap-param-gather"
MIXTURE = f"{DISTRIBUTED} --num-experts 2 --expert-model-parallel-size 2 --moe-router-topk 2 " \
          "--moe-token-dispatcher-type allgather --disable-bias-linear"
KINDS = {
    "plain": "", "distributed": DISTRIBUTED, "bf16 with overlap": OVERLAP, "TP2": "--tensor-model-parallel-size 2",
    "PP2": f"--pipeline-model-parallel-size 2 --bf16 {DISTRIBUTED}", "MoE EP2": MIXTURE,
}
LAYOUTS = {**KINDS, "MoE": MIXTURE.replace("--expert-model-parallel-size 2", "")}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    @functools.cache
    def ends(kind):
        return run(tmp_path_factory.mktemp("uninterrupted"), "megatron_lm:pretrain", nursery=nursery, world=2,
                   arguments=["--train-iters", str(STEPS), *KINDS[kind].split()])

    return ends


@pytest.fixture
def pretrain(tmp_path, site, nursery):
    """Starts a job; with `die_at` it is killed after that iteration."""
    def start(kind, *more, die_at=None, world=2, environment=None, by_hand=False):
        config = site.dir / "tierckpt.json"
        config.write_text(json.dumps(site.config))
        arguments = ["--train-iters", str(STEPS), *LAYOUTS[kind].split(), *more]
        with Job(tmp_path, "megatron_lm:pretrain", nursery=nursery, world=world, arguments=arguments, die_at=die_at,
                 by_hand=by_hand, environment=environment or {"TIERCKPT_CONFIG": str(config)}) as job:
            results = job.killed() if die_at else job.results()
            start.log = job.log(1 << 20)
            return results

    return start


def assert_goes_on_from(step, ranks, expected):
    for (first, ends), (_, expected_ends) in zip(ranks, expected, strict=True):
        assert first == step + 1
        assert ends == {iteration: expected_ends[iteration] for iteration in ends}
        assert str(STEPS) in ends


@pytest.mark.parametrize("kind", KINDS)
def test_killed_job_goes_on_with_equal_bits(pretrain, site, uninterrupted, kind):
    step = random.Random(kind).randint(2, STEPS - 1)
    pretrain(kind, die_at=step)
    assert_goes_on_from(step, pretrain(kind), uninterrupted(kind))
    assert site.agents_left(within_s=10) == []


def test_ordered_exit_leaves_all_on_storage(pretrain, site, uninterrupted):
    pretrain("bf16 with overlap", "--exit-interval", "4")
    site.kill_agents()
    assert_goes_on_from(4, pretrain("bf16 with overlap"), uninterrupted("bf16 with overlap"))


def test_own_checkpoint_of_megatron_wins_if_it_is_later(pretrain, tmp_path, site, uninterrupted):
    """Samples, operations and the schedule are those of its own checkpoint; none of them is counted twice."""
    own = ["--save", str(tmp_path / "own"), "--load", str(tmp_path / "own"), "--save-interval", "4"]
    site.config["save_mem_interval"] = 3
    pretrain("TP2", *own, die_at=4)
    for (first, ends), (_, expected) in zip(pretrain("TP2", *own), uninterrupted("TP2"), strict=True):
        assert first == 5
        for iteration in ends:  # its own load is not bit-exact: code after it draws from the generators
            assert ends[iteration][2:] == expected[iteration][2:]


def test_own_checkpoint_of_megatron_does_not_hide_a_later_one_of_ours(pretrain, tmp_path, uninterrupted):
    own = ["--save", str(tmp_path / "own"), "--load", str(tmp_path / "own"), "--save-interval", "3"]
    pretrain("distributed", *own, die_at=5)
    assert_goes_on_from(5, pretrain("distributed", *own), uninterrupted("distributed"))


def back_to(step, site, restarts=0, job="7"):
    """Arguments of pretrain, in a job of Slurm that was requeued so many times."""
    return ["--ckpt-step", str(step)], {"environment": {
        "TIERCKPT_CONFIG": str(site.dir / "tierckpt.json"), "SLURM_JOB_ID": job, "SLURM_RESTART_COUNT": str(restarts)}}


def test_ckpt_step_loads_that_version(pretrain, site, uninterrupted):
    """Of later ones, in memory and on storage, none is loaded, until the argument is taken away."""
    site.config["save_storage_interval"] = 2
    pretrain("distributed", "--exit-interval", "5")
    arguments, environment = back_to(2, site)
    pretrain("distributed", *arguments, die_at=3, **environment)
    ranks = pretrain("distributed", *arguments, "--exit-interval", "4", **environment)
    for (first, ends), (_, expected) in zip(ranks, uninterrupted("distributed"), strict=True):
        assert first == 3 and ends == {iteration: expected[iteration] for iteration in ("3", "4")}
    assert "iteration 2 is loaded, as --ckpt-step asks" in pretrain.log
    assert_goes_on_from(4, pretrain("distributed"), uninterrupted("distributed"))


def test_ckpt_step_of_nothing_is_an_error(pretrain, tmp_path, site):
    own = ["--save", str(tmp_path / "own"), "--load", str(tmp_path / "own"), "--save-interval", "1000"]
    pretrain("plain", *own, die_at=4)
    for places, absent in ((own, f"{tmp_path}/own/iter_0000003 does not exist"), ([], "--load is not given")):
        arguments, environment = back_to(3, site)
        with pytest.raises(AssertionError, match="--ckpt-step 3: step 3: no copy was seen; the newest version seen is "
                                                 f"1.4, and {absent}"):
            pretrain("plain", *places, *arguments, **environment)


def test_ckpt_step_loads_that_checkpoint_of_megatron_and_a_restart_goes_on(pretrain, tmp_path, site):
    """Though Megatron has a later one, and memory two of which one is later."""
    own = ["--save", str(tmp_path / "own"), "--load", str(tmp_path / "own"), "--save-interval", "2"]
    first = lambda ranks: [of_rank[0] for of_rank in ranks]  # noqa: E731
    pretrain("TP2", *own, die_at=5)
    for restarts in (0, 1):  # the second time nothing has been saved since
        arguments, environment = back_to(2, site, restarts)
        site.config["save_mem_interval"] = 1 if restarts else 1000
        pretrain("TP2", *own, *arguments, die_at=3, **environment)
    for job, restarts, continues in (("7", 2, True), ("8", 1, False), ("7", 0, False)):
        arguments, environment = back_to(2, site, restarts, job)
        ranks = pretrain("TP2", *own, *arguments, "--exit-interval", "5" if continues else "3", **environment)
        assert first(ranks) == ([4, 4] if continues else [3, 3])


def test_without_a_configuration_versions_go_below_save(pretrain, tmp_path, site, uninterrupted):
    environment = {"TIERCKPT_RUNTIME_DIR": str(site.dir / "run")}
    save = ["--save", str(tmp_path / "own"), "--save-interval", "1000"]
    try:
        pretrain("PP2", *save, "--exit-interval", "4", environment=environment)
        (directory,) = (tmp_path / "own/tierckpt").iterdir()
        ranks = pretrain("PP2", *save, environment=environment)
    finally:
        for job in (site.dir / "run").iterdir():
            site.config["job"] = job.name
            site.kill_agents()
    assert directory.name == job.name
    assert_goes_on_from(4, ranks, uninterrupted("PP2"))


def test_another_number_of_ranks_goes_on_from_storage(pretrain, site, uninterrupted):
    pretrain("bf16 with overlap", "--exit-interval", "4")
    site.kill_agents()
    environment = {"TIERCKPT_CONFIG": str(site.dir / "tierckpt.json"), "TIERCKPT_MEGATRON_CONCAT": "on"}
    ((first, ends),) = pretrain("bf16 with overlap", world=1, environment=environment)
    assert first == 5
    for iteration, end in ends.items():
        assert end[2:] == uninterrupted("bf16 with overlap")[0][1][iteration][2:]


@pytest.mark.parametrize("kind, world, other, other_world", [
    ("TP2", 2, "plain", 1), ("PP2", 2, "TP2", 2), ("PP2", 2, "distributed", 1), ("bf16 with overlap", 2, "PP2", 4),
    ("MoE EP2", 2, "MoE", 1)])
def test_other_parallel_sizes_go_on_from_storage(pretrain, tmp_path, site, nursery, kind, world, other, other_world):
    """Without dropout the losses are nearly those that the first layout would have gone on with."""
    same = "--make-vocab-size-divisible-by 64 --attention-dropout 0 --hidden-dropout 0".split()
    expected = run(tmp_path, "megatron_lm:pretrain", nursery=nursery, world=world,
                   arguments=["--train-iters", str(STEPS), *LAYOUTS[kind].split(), *same])[-1][1]
    pretrain(kind, *same, "--exit-interval", "4", world=world)
    site.kill_agents()
    environment = {"TIERCKPT_CONFIG": str(site.dir / "tierckpt.json"), "TIERCKPT_MEGATRON_CONCAT": "on"}
    precision = ["--bf16"] if "--bf16" in LAYOUTS[kind] and "--bf16" not in LAYOUTS[other] else []
    first, ends = pretrain(other, *same, *precision, world=other_world, environment=environment)[-1]
    assert first == 5 and list(ends) == ["5", "6"]
    for iteration, (losses, _, *rest) in ends.items():
        assert rest == expected[iteration][2:]
        assert losses == {name: pytest.approx(value, rel=2e-2) for name, value in expected[iteration][0].items()}


# ---- storage_format framework


LONG = 1000  # a --save-interval that is never over


@pytest.fixture
def own_format(pretrain, tmp_path, site):
    """Trains with Megatron's own checkpoints on storage, every second iteration, in a directory that is returned."""
    directory = tmp_path / "own"

    def start(kind, *more, load=True, **arguments):
        site.config.update(storage_format="framework", save_storage_interval=2, max_ckpt_num=2)
        places = ["--save", str(directory), *(["--load", str(directory)] if load else [])]
        return pretrain(kind, *places, "--save-interval", str(LONG), *more, **arguments)

    start.directory = directory
    return start


def saved_in(directory):
    return sorted(int(path.name.removeprefix("iter_")) for path in directory.glob("iter_*"))


def files_in(directory):
    """Apart from Tierckpt's marker."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.name != ".tierckpt")


def assert_no_versions(site):
    assert list((site.dir / "save").rglob("v*.t*")) == []


def stock(tmp_path, nursery, kind, directory, *more):
    """What Megatron does without Tierckpt with what is in this directory."""
    return run(tmp_path, "megatron_lm:pretrain", nursery=nursery, world=2,
               arguments=["--train-iters", str(STEPS), *KINDS[kind].split(), "--load", str(directory), *more])


LEGACY = ["--ckpt-format", "torch"]


def stock_saves(tmp_path, nursery, kind, *more):
    """The directory of iteration 4 that Megatron saves without Tierckpt."""
    alone = tmp_path / "alone"
    run(tmp_path, "megatron_lm:pretrain", nursery=nursery, world=2, arguments=[
        "--train-iters", str(STEPS), *KINDS[kind].split(), "--save", str(alone), "--save-interval", "4",
        "--exit-interval", "4", *more])
    return alone / "iter_0000004"


RESHARDABLE = ["--dist-ckpt-optim-fully-reshardable"]


@pytest.mark.parametrize("kind, more", [
    ("bf16 with overlap", RESHARDABLE), ("PP2", RESHARDABLE), ("MoE EP2", []),
    ("bf16 with overlap", ["--no-ckpt-fully-parallel-save"]), ("distributed", LEGACY), ("MoE EP2", LEGACY)])
def test_in_its_own_format_are_the_files_and_tensors_of_stock_megatron(own_format, tmp_path, nursery, kind, more):
    own_format(kind, *more, die_at=5)
    ours, theirs = own_format.directory / "iter_0000004", stock_saves(tmp_path, nursery, kind, *more)
    assert files_in(ours) == files_in(theirs)
    read = (legacy_tensors if more == LEGACY else sharded_tensors)
    assert_equal(read(ours), read(theirs))


def sharded_tensors(directory):
    metadata = FileSystemReader(directory).read_metadata()
    names = [name for name, entry in metadata.state_dict_metadata.items() if isinstance(entry, TensorStorageMetadata)]
    tensors = {name: torch.empty(metadata.state_dict_metadata[name].size,
                                 dtype=metadata.state_dict_metadata[name].properties.dtype) for name in names}
    dcp.load(tensors, storage_reader=FileSystemReader(directory), no_dist=True)
    assert len(tensors) > 10
    whole = {name: tensor for name, tensor in tensors.items() if "gbuf_idx" not in name}  # that one has gaps
    return {**whole, "names": sorted(metadata.state_dict_metadata)}


class AnyClass(pickle.Unpickler):
    """The arguments of the program have classes of its own, which are not here."""

    def find_class(self, module, name):
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return type(name, (), {"__init__": lambda *_: None})


def legacy_tensors(directory):
    lenient = types.SimpleNamespace(Unpickler=AnyClass, __name__="lenient")
    loaded = {str(path.relative_to(directory)): torch.load(path, weights_only=False, pickle_module=lenient)
              for path in sorted(directory.rglob("*.pt"))}
    for value in loaded.values():
        value.pop("args", None) if isinstance(value, dict) else None
    return loaded


def assert_equal(one, other):
    if torch.is_tensor(one):
        assert one.dtype == other.dtype and torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_equal(one[name], other[name])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for of_one, of_other in zip(one, other, strict=True):
            assert_equal(of_one, of_other)


@pytest.mark.parametrize("kind, more", [("plain", []), ("TP2", []), ("plain", LEGACY)])
def test_in_its_own_format_stock_megatron_goes_on(own_format, tmp_path, site, nursery, kind, more):
    """As it does from a checkpoint that it has saved without Tierckpt. So does a job whose memory is lost."""
    own_format(kind, *more, die_at=5)
    site.kill_agents()
    assert saved_in(own_format.directory) == [2, 4] and list(own_format.directory.glob("tmp-*")) == []
    alone = stock_saves(tmp_path, nursery, kind, *more).parent
    assert files_in(own_format.directory / "iter_0000004") == files_in(alone / "iter_0000004")
    expected = stock(tmp_path, nursery, kind, alone, *more)
    assert [rank[0] for rank in expected] == [5, 5]
    assert stock(tmp_path, nursery, kind, own_format.directory, *more) == expected
    for (first, ends), (_, ends_of_stock) in zip(own_format(kind, *more), expected, strict=True):
        assert first == 5
        for iteration in ends:  # code after its load draws from the generators
            assert ends[iteration][2:] == ends_of_stock[iteration][2:]
    assert_no_versions(site)


def test_in_its_own_format_memory_wins_if_it_is_later(own_format, site, uninterrupted):
    own_format("bf16 with overlap", die_at=5)
    assert_goes_on_from(5, own_format("bf16 with overlap"), uninterrupted("bf16 with overlap"))
    assert_no_versions(site)


def test_in_its_own_format_a_training_that_went_back_is_what_is_loaded(own_format, tmp_path, site, nursery):
    """The tracker file names its newest iteration, though the directory of a later one is there."""
    own_format("plain", "--exit-interval", "6")
    site.kill_agents()
    arguments, environment = back_to(2, site)
    own_format("plain", *arguments, die_at=5, **environment)
    site.kill_agents()
    assert (own_format.directory / "latest_checkpointed_iteration.txt").read_text() == "4"
    arguments, environment = back_to(2, site, restarts=1)  # memory is gone
    ranks = own_format("plain", *arguments, "--exit-interval", "5", **environment)
    assert [of_rank[0] for of_rank in ranks] == [5, 5]
    assert [first for first, _ in stock(tmp_path, nursery, "plain", own_format.directory)] == [6, 6]


def test_in_its_own_format_it_goes_on_from_save_without_load(own_format, site):
    own_format("plain", load=False, die_at=5)
    site.kill_agents()
    assert [first for first, _ in own_format("plain", load=False)] == [5, 5]


def test_in_its_own_format_a_loop_by_hand_saves_the_same(own_format, tmp_path, site):
    for by_hand in (False, True):
        own_format("bf16 with overlap", die_at=3, by_hand=by_hand)
        site.kill_agents()
        assert saved_in(own_format.directory) == [2]
        assert (own_format.directory / "iter_0000002/.tierckpt").is_file()
        own_format.directory.rename(tmp_path / f"saved-{by_hand}")
        site.config["job"] = "by-hand"
    hooked, ours = (sorted(path.name for path in (tmp_path / f"saved-{by_hand}").rglob("*"))
                    for by_hand in (False, True))
    assert hooked == ours


def test_in_its_own_format_only_old_directories_of_ours_are_deleted(own_format, site):
    """Those at --save-interval are Megatron's; that of the last iteration is, too."""
    own_format("plain", "--save-interval", "3", "--train-iters", "10")
    assert saved_in(own_format.directory) == [3, 4, 6, 8, 9, 10]
    marked = [path.parent.name for path in own_format.directory.rglob(".tierckpt")]
    assert sorted(marked) == ["iter_0000004", "iter_0000008"]
    assert_no_versions(site)


def test_in_its_own_format_async_save_changes_nothing(own_format, tmp_path, site, nursery):
    own_format("plain", "--async-save", die_at=5)
    site.kill_agents()
    assert [rank[0] for rank in stock(tmp_path, nursery, "plain", own_format.directory)] == [5, 5]
    assert all(first == 5 for first, _ in own_format("plain", "--async-save"))
    assert_no_versions(site)


# ---- what is written in the background


@pytest.fixture
def held(own_format, tmp_path, site):
    """Trains as own_format does, while the write of an iteration is held, or fails (see megatron_hold.py)."""
    def start(iteration, *more, mode="hold", **arguments):
        environment = {"TIERCKPT_CONFIG": str(site.dir / "tierckpt.json"), "TEST_HOLD_AT": str(iteration),
                       "TEST_HOLD": str(tmp_path / mode)}
        return own_format("plain", *more, environment=environment, **arguments)

    return start


def test_killed_in_the_middle_of_a_write_megatron_loads_the_one_before(held, own_format, tmp_path, site, nursery,
                                                                       uninterrupted):
    """Everything of iteration 4 is written but its name. Training has gone on meanwhile: it was killed in 5."""
    held(4, die_at=5)
    assert (tmp_path / "hold.4").exists() and not (tmp_path / "hold").exists()
    directory = own_format.directory
    assert (directory / "latest_checkpointed_iteration.txt").read_text() == "2"
    assert saved_in(directory) == [2]
    assert [path.name[:16] for path in directory.glob("tmp-*")] == ["tmp-iter_0000004"]
    assert [rank[0] for rank in stock(tmp_path, nursery, "plain", directory)] == [3, 3]
    assert_goes_on_from(5, own_format("plain"), uninterrupted("plain"))  # from memory
    assert list(directory.glob("tmp-*")) == [] and saved_in(directory) == [2, 6]


def test_killed_in_the_middle_of_the_first_write_nothing_is_there_to_load(held, own_format):
    held(2, die_at=3)
    assert saved_in(own_format.directory) == []
    assert not (own_format.directory / "latest_checkpointed_iteration.txt").exists()


def test_step_that_comes_during_a_write_is_skipped_and_the_end_waits_for_the_write(held, own_format, pretrain):
    """The write of 2 ends only after training has gone on to 5, beyond 4."""
    ranks = held(2)
    assert [len(ends) for _, ends in ranks] == [STEPS, STEPS]
    assert saved_in(own_format.directory) == [2, 6]  # 6: by Megatron itself
    assert pretrain.log.count("iteration 4 is not written to storage, since the one before is still being written (1 "
                              "skipped so far)") == 1


@pytest.mark.parametrize("mode, reason", [
    ("fail", "rank 1: OSError: [Errno 28] No space left on device"), ("die", "signal 9")])
def test_write_that_fails_is_reported_and_the_next_one_works(held, own_format, pretrain, mode, reason):
    ranks = held(2, mode=mode)
    assert [len(ends) for _, ends in ranks] == [STEPS, STEPS]
    assert saved_in(own_format.directory) == [4, 6] and list(own_format.directory.glob("tmp-*")) == []
    text = f"{own_format.directory}/iter_0000002 was not written: "
    told = [line for line in pretrain.log.splitlines() if line.startswith(f"ERROR:tierckpt:{text}")]
    shown = [line for line in pretrain.log.splitlines() if line.startswith(f"health at 3: 1: {text}")]
    assert len(told) == 1 and len(shown) == 2 and any(reason in line for line in [*told, *shown])
    assert "health at 5" not in pretrain.log
