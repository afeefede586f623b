# SPDX-License-Identifier: Apache-2.0
"""EasyCkpt's lines for Megatron, with the imports that its document shows."""

import importlib.util
import random
from pathlib import Path

import pytest

from harness import Job, run

if importlib.util.find_spec("megatron") is None:
    pytest.skip("megatron-core is not installed", allow_module_level=True)

NURSERY = "easyckpt_megatron"


def call(tmp_path, site, nursery, function, **arguments):
    return run(tmp_path, f"easyckpt_megatron:{function}", nursery=nursery, world=2, directory=str(tmp_path),
               config=site.config, **arguments)


def test_killed_training_goes_on_with_equal_bits(tmp_path, site, nursery):
    whole = run(tmp_path, "easyckpt_megatron:train", nursery=nursery, world=2, directory=str(tmp_path))
    step = random.Random("easyckpt").randint(5, 8)
    with Job(tmp_path, "easyckpt_megatron:train", nursery=nursery, world=2, directory=str(tmp_path),
             config=site.config, die_at=step) as job:
        job.killed()
    resumed = call(tmp_path, site, nursery, "train")
    for (first, losses, digest, warnings), (_, all_losses, all_digest, _) in zip(resumed, whole, strict=True):
        assert first == step and losses == all_losses[step:] and digest == all_digest
        assert warnings == []
    assert [path.name[:13] for path in (tmp_path / site.config["save_dir"] / "test").glob("v*")] == ["v000000000005"]


def test_log_file_is_one_of_the_node_and_says_where_the_agents_are(tmp_path, site, nursery):
    call(tmp_path, site, nursery, "train", iterations=2)
    log, = tmp_path.glob("test.*.log")
    text = log.read_text()
    assert "INFO rank 0 the messages of this rank are in" in text and "rank 1 the messages" in text
    assert not Path(tmp_path, "test.log").exists()


def test_log_file_is_also_that_of_the_agent_if_initialize_comes_first(tmp_path, site, nursery):
    site.config["node"] = "one"
    assert "test.one.log" in call(tmp_path, site, nursery, "initialize_first")[0]
    assert "info one " in (tmp_path / "test.one.log").read_text()


def test_what_comes_too_late_is_named_once(tmp_path, site, nursery):
    first, second = call(tmp_path, site, nursery, "other_keys_after_the_load")
    assert len(first) == 1 and second == []
    assert first[0].startswith("copies cannot be changed any more, since the load before initialize_easyckpt")


@pytest.mark.parametrize("initialize, replaced", [(True, False), (False, False), (True, True)])
def test_hook_works_with_and_without_the_other_lines(tmp_path, site, nursery, initialize, replaced):
    """Without initialize_easyckpt, the interval of the default is 10 iterations."""
    for iterations, begins_at in ((10, 0), (11, 10)):
        for first, warnings in call(tmp_path, site, nursery, "hooked", iterations=iterations, initialize=initialize,
                                    replaced=replaced):
            assert (first, warnings) == (begins_at, [])
