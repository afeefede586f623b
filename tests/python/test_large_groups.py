# SPDX-License-Identifier: Apache-2.0
"""A replica group that is large makes several shards, which the ranks of a node save in parts."""

import torch

import tierckpt
from harness import run

TENSORS, MIB = 11, 50  # more than the 512 MiB from which on a group makes several shards


def train(rank, world, overrides, step):
    """Loads, saves this step, and returns what was loaded and how many bytes this rank has copied."""
    model = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(MIB << 20, dtype=torch.uint8), requires_grad=False)
                                   for _ in range(TENSORS))
    with tierckpt.init(model=model, replicate_group=torch.distributed.group.WORLD, overrides=overrides) as checkpoint:
        loaded = checkpoint.load_checkpoint()
        values = [sorted(set(parameter[::4099].tolist())) for parameter in model]
        for number, parameter in enumerate(model):
            parameter.fill_(10 * step + number)
        checkpoint.save_checkpoint(step, to_storage=True)
        checkpoint.wait("drained")
        return loaded, values, checkpoint.stats().bytes_copied


def test_a_large_group_is_saved_in_parts_and_restored_as_a_whole(site, tmp_path):
    overrides = {**site.config, "slots": 2, "memory_cap_bytes": "2GiB", "save_storage_interval": 1}
    first = run(tmp_path, "test_large_groups:train", world=2, overrides=overrides, step=1)
    assert [loaded for loaded, _, _ in first] == [None, None]
    copied = [copied for _, _, copied in first]
    whole = TENSORS * MIB << 20
    assert min(copied) > whole / 3 and sum(copied) < 1.1 * whole, copied
    files = [path.stat().st_size for path in (site.dir / "save/test").glob("v*.t1/shard-*") if
             path.stat().st_size > 1 << 20]
    assert len(files) == 2 and max(files) < 0.6 * whole, files
    for killed in (False, True):  # from memory, and from storage
        if killed:
            site.kill_agents()
        step = 3 if killed else 2
        for loaded, values, _ in run(tmp_path, "test_large_groups:train", world=2, overrides=overrides, step=step):
            assert loaded == step - 1
            assert values == [[10 * (step - 1) + number] for number in range(TENSORS)]
