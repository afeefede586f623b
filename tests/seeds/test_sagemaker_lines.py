# SPDX-License-Identifier: Apache-2.0
"""The lines of SMP's document "Checkpointing using SMP": what is loaded is what was saved."""

import importlib.util
import os
import random
import shutil

import pytest

from harness import Job, run

NURSERY = "sagemaker_program"
STEPS = 6


def call(tmp_path, nursery, function, world=2, **arguments):
    return run(tmp_path, f"sagemaker_program:{function}", nursery=nursery, world=world, directory=str(tmp_path),
               **arguments)


def killed(tmp_path, nursery, world=2, **arguments):
    with Job(tmp_path, "sagemaker_program:train", nursery=nursery, world=world, directory=str(tmp_path),
             **arguments) as job:
        job.killed()


def uninterrupted(tmp_path_factory, nursery, **arguments):
    return call(tmp_path_factory.mktemp("whole"), nursery, "train", **arguments)


def assert_resumed(resumed, whole, step):
    """The save of the last step was in flight when the ranks were killed."""
    begun = {rank[0] for rank in resumed}
    assert begun in ({step - 1}, {step})
    for (first, _, losses, digest, _), (_, _, all_losses, all_digest, _) in zip(resumed, whole, strict=True):
        assert losses == all_losses[first:] and digest == all_digest


@pytest.mark.parametrize("use_orig_params", [True, False])
@pytest.mark.parametrize("kind", ["local", "sharded"])
def test_killed_training_goes_on_with_equal_bits(tmp_path, tmp_path_factory, job_site, nursery, kind, use_orig_params):
    training = {"kind": kind, "use_orig_params": use_orig_params}
    whole = uninterrupted(tmp_path_factory, nursery, **training)
    step = random.Random(kind).randint(3, STEPS - 1)
    killed(tmp_path, nursery, die_at=step, **training)
    resumed = call(tmp_path, nursery, "train", **training)
    assert_resumed(resumed, whole, step)
    assert [rank[4] for rank in resumed] == [kind == "local"] * 2  # the model alone is loaded from storage


@pytest.mark.parametrize("kind, mesh", [("local", True), ("sharded", True), ("sharded", False)])
def test_replicas_go_on_with_equal_bits(tmp_path, tmp_path_factory, nursery, kind, mesh):
    """Four ranks of which two hold the same shard; of a sharded checkpoint only the first replica saves."""
    training = {"kind": kind, "degree": 2, "world": 4, "mesh": mesh}
    whole = uninterrupted(tmp_path_factory, nursery, **training)
    killed(tmp_path, nursery, die_at=4, **training)
    assert_resumed(call(tmp_path, nursery, "train", **training), whole, 4)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == [".tierckpt", *(
        ["tp0_ep0"] if kind == "sharded" else ["tp0_ep0_fsdp0", "tp0_ep0_fsdp1"])]


@pytest.mark.parametrize("worlds", [(4, 2), (2, 4)])
def test_local_checkpoint_is_loaded_by_another_number_of_replicas(tmp_path, nursery, worlds):
    before = call(tmp_path, nursery, "train", kind="local", degree=2, world=worlds[0])
    after = call(tmp_path, nursery, "train", kind="local", degree=2, world=worlds[1])
    assert {(rank[0], rank[1]) for rank in after} == {(STEPS, before[0][3])}


@pytest.mark.parametrize("before, after", [((2, 0), (3, 0)), ((4, 2), (3, 0)), ((2, 0), (4, 2))])
def test_sharded_checkpoint_is_loaded_with_another_shard_degree(tmp_path, nursery, before, after):
    saved = call(tmp_path, nursery, "train", kind="sharded", world=before[0], degree=before[1])
    loaded = call(tmp_path, nursery, "train", kind="sharded", world=after[0], degree=after[1])
    assert {(rank[0], rank[1]) for rank in loaded} == {(STEPS, saved[0][3])}


@pytest.mark.parametrize("kind", ["local", "sharded"])
def test_directories_alone_are_enough(tmp_path, job_site, nursery, kind):
    (tmp_path / "before").mkdir()
    saved = call(tmp_path / "before", nursery, "train", kind=kind)
    job_site.kill_agents()
    shutil.rmtree(tmp_path / "before/checkpoints/.tierckpt")
    os.rename(tmp_path / "before", tmp_path / "after")
    loaded = call(tmp_path / "after", nursery, "train", kind=kind)
    assert [rank[:2] for rank in loaded] == [[STEPS, saved[0][3]]] * 2


def test_directory_of_a_shard_has_its_own_files_alone(tmp_path, nursery):
    files = call(tmp_path, nursery, "through_a_copy")
    assert [len(names) for names in files] == [2, 2] and files[0] != files[1]
    assert files[0][0] == files[1][0] == "manifest.json"


def test_full_checkpoint_is_that_of_torch(tmp_path, nursery):
    call(tmp_path, nursery, "full")


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_full_checkpoint_is_opened_by_from_pretrained(tmp_path, nursery):
    call(tmp_path, nursery, "full_of_transformers")


@pytest.mark.parametrize("case, text", [
    ("url", "UnsupportedError: checkpoint_id gs://your_bucket/key is a URL: "),
    ("url load", "UnsupportedError: checkpoint_id gs://your_bucket/key is a URL: "),
    ("region", "UnsupportedError: s3_region "), ("transform", "UnsupportedError: torch.sagemaker.transform "),
    ("tensor parallel", "UnsupportedError: tensor_parallel_degree 2 "),
    ("offloading", "UnsupportedError: sm_activation_offloading "),
    ("unknown", "InvalidArgumentError: torch.sagemaker.init has no parameter hybrid_degree"),
    ("translate_on_save", "TypeError: "), ("nothing", "NotFoundError: nothing was saved as "),
    ("degree", "InvalidArgumentError: process_group has 2 ranks, and hybrid_shard_degree is 1"),
    ("replicas", "InvalidArgumentError: ranks 0 and 1 are in one process_group, and their shards are tp0_ep0_fsdp0 "),
])
def test_what_cannot_work_is_named(wrong, case, text):
    assert [said[case][:len(text)] for said in wrong] == [text] * len(wrong)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory, nursery):
    return call(tmp_path_factory.mktemp("wrong"), nursery, "wrong")


def test_replica_that_saves_a_sharded_state_dict_is_told_so(tmp_path, nursery):
    assert "hybrid_shard_degree is 4" in call(tmp_path, nursery, "replica_saves", world=4)[3]


def test_ranks_are_those_of_the_configuration_and_those_of_the_launcher_come_first(tmp_path, nursery):
    for rank, found in enumerate(call(tmp_path, nursery, "sizes", world=4)):
        assert found == [[[0, 2], [1, 3]], [[0, 1, 2, 3]], rank, [0, 1, 2, 3]]
