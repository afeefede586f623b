# SPDX-License-Identifier: Apache-2.0
"""fully_shard with torch.distributed.checkpoint, kept in memory and on storage. The lines to add are marked.

    torchrun --nproc-per-node 2 dcp_fsdp.py CONFIG.json [STEPS]

Kill it and start it again: it continues where it stopped. This also works with another number of ranks.
"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tierckpt.dcp  # <- added


def state_of(model, optimizer, step):
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": step}


def main(config, steps=100):
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    group = dist.new_group(backend="gloo")  # dcp.async_save works in another thread, so not in the training's group
    state, done = state_of(model, optimizer, 0), None

    with tierckpt.dcp.attach(state, config=config) as tiers:  # <- added
        if tiers.newest() is not None:
            dcp.load(state, storage_reader=tiers.reader())  # <- was: FileSystemReader(...)
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        for step in range(state["step"] + 1, steps + 1):
            model(torch.randn(8, 64)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 10 == 0:
                if done is not None:
                    done.result()
                writer = tiers.writer(f"step-{step}")  # <- was: FileSystemWriter(...)
                saving = dcp.async_save(state_of(model, optimizer, step), process_group=group, storage_writer=writer)
                done = saving.upload_completion
        if done is not None:
            done.result()
    print(f"trained from step {state['step']} to {steps}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
