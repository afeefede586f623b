# SPDX-License-Identifier: Apache-2.0
"""Programs that do not know Tierckpt can open a published version."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tierckpt
from harness import run

LOADER = Path(__file__).with_name("load_published.py")


def publish(rank, world, kind, config, reference):
    """Trains a little, publishes, and writes the whole model and its moments to `reference`."""
    import models

    model, optimizer = models.make(kind)
    with tierckpt.init(model=model, optimizer=optimizer, config=config) as checkpoint:
        for _ in range(2):
            model(torch.randn(4, models.WIDTH)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        checkpoint.save_checkpoint(2, to_storage=True)
        checkpoint.wait("drained")
    named = dict(getattr(model, "module", model).named_parameters())
    state = dict(getattr(model, "module", model).state_dict())
    state.update({f"optimizer.{name}.exp_avg": optimizer.state[param]["exp_avg"] for name, param in named.items()})
    state = {key: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for key, tensor in state.items()}
    if rank == 0:
        torch.save(state, reference)


def load(directory, reference, store=None, rank=0, world=1):
    command = [sys.executable, "-I", str(LOADER), str(directory), str(reference), *([str(store)] if store else [])]
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def assert_loads(processes):
    try:
        for process in processes:
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0 and output.endswith("equal\n"), output
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize("kind, world", [("ddp", 2), ("fsdp", 2), ("hsdp", 4)])
def test_stock_pytorch_loads_it_whole_and_sharded(tmp_path, site, kind, world):
    reference = tmp_path / "reference.pt"
    run(tmp_path, "test_published:publish", world=world, kind=kind, config=site.config, reference=str(reference))
    manifest, = (site.dir / "save" / "test").glob("*/manifest.json")
    assert_loads([load(manifest.parent, reference)])
    store = tmp_path / "store"
    assert_loads([load(manifest.parent, reference, store, rank, 2) for rank in range(2)])
