# SPDX-License-Identifier: Apache-2.0
"""Loads a checkpoint as a program without tierckpt does: python -I stock_dcp.py DIR REFERENCE [STORE].

Uses dcp.load(checkpoint_id=DIR) of PyTorch alone and, without STORE, also dcp_to_torch_save. With STORE, RANK and
WORLD_SIZE the tensors are sharded over the ranks. Prints "equal" if everything is the same as in the nested state dict
of REFERENCE, which has whole tensors.
"""

import io
import os
import sys

sys.modules["tierckpt"] = None  # any import of it fails

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save  # noqa: E402
from torch.distributed.tensor import DTensor, Shard, distribute_tensor, init_device_mesh  # noqa: E402


def blank(value, mesh):
    if isinstance(value, dict):
        return {key: blank(item, mesh) for key, item in value.items()}
    if isinstance(value, list):
        return [blank(item, mesh) for item in value]
    if not torch.is_tensor(value):
        return None
    empty = torch.zeros_like(value)
    return distribute_tensor(empty, mesh, [Shard(value.dim() - 1)]) if mesh and value.dim() > 0 else empty


def bits(tensor):
    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.dtype, whole.shape, whole.contiguous().reshape(-1).view(torch.uint8).tolist()


def check(expected, found, key=""):
    if isinstance(expected, dict):
        assert expected.keys() == found.keys(), (key, expected.keys() ^ found.keys())
        for name, item in expected.items():
            check(item, found[name], f"{key}.{name}")
    elif isinstance(expected, list):
        assert len(expected) == len(found), key
        for i, item in enumerate(expected):
            check(item, found[i], f"{key}.{i}")
    elif torch.is_tensor(expected):
        assert bits(found) == bits(expected), key
    elif isinstance(expected, io.BytesIO):
        assert expected.getvalue() == found.getvalue(), key
    else:
        assert expected == found and type(expected) is type(found), (key, expected, found)


def main():
    directory, reference_file, *store = sys.argv[1:]
    mesh = None
    if store:
        world = int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", init_method=f"file://{store[0]}", rank=int(os.environ["RANK"]),
                                world_size=world)
        mesh = init_device_mesh("cpu", (world,))
    reference = torch.load(reference_file, weights_only=False)
    state = blank(reference, mesh)
    dcp.load(state, checkpoint_id=directory, no_dist=not store)
    check(reference, state)
    if not store:
        dcp_to_torch_save(directory, f"{reference_file}.converted")
        check(reference, torch.load(f"{reference_file}.converted", weights_only=False))
    print("equal", flush=True)
    if store:
        dist.barrier()
        dist.destroy_process_group()
    os._exit(0)  # a thread of gloo may need the interpreter, which must not be torn down meanwhile


main()
