# SPDX-License-Identifier: Apache-2.0
"""Loads a published version as a program without tierckpt does: python -I load_published.py DIR REFERENCE [STORE].

Uses PyTorch's own reader, and loads into a plain model or, with STORE and RANK and WORLD_SIZE, into one that
is sharded over the ranks, and compares it with the state dict in REFERENCE. Prints "equal" if it is the same.
"""

import os
import sys

sys.modules["tierckpt"] = None  # any import of it fails

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from safetensors import safe_open  # noqa: E402
from torch.distributed.checkpoint import HuggingFaceStorageReader  # noqa: E402
from torch.distributed.tensor import DTensor, Shard, distribute_tensor, init_device_mesh  # noqa: E402


def blank(value, mesh):
    if isinstance(value, dict):
        return {key: blank(item, mesh) for key, item in value.items()}
    empty = torch.full_like(value, 99)
    return distribute_tensor(empty, mesh, [Shard(0)]) if mesh and value.dim() > 0 else empty


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def tensors_of(value):
    """The tensors of a nested state dict; the stock reader cannot load other values."""
    if not isinstance(value, dict):
        return value
    left = {key: tensors_of(item) for key, item in value.items() if isinstance(item, dict) or torch.is_tensor(item)}
    return {key: item for key, item in left.items() if not isinstance(item, dict) or item}


def check(expected, found, key=""):
    if isinstance(expected, dict):
        for name, item in expected.items():
            check(item, found[name], f"{key}.{name}")
    else:
        assert torch.equal(whole(found), expected), key


def main():
    directory, reference_file, *store = sys.argv[1:]
    mesh = None
    if store:
        world = int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", init_method=f"file://{store[0]}", rank=int(os.environ["RANK"]),
                                world_size=world)
        mesh = init_device_mesh("cpu", (world,))
    for name in sorted(os.listdir(directory)):
        if name.endswith(".safetensors"):
            with safe_open(os.path.join(directory, name), "pt") as file:
                assert all(file.get_tensor(key) is not None for key in file.keys())
    reference = tensors_of(torch.load(reference_file, weights_only=False))
    state = blank(reference, mesh)
    dcp.load(state, storage_reader=HuggingFaceStorageReader(directory), no_dist=not store)
    check(reference, state)
    print("equal", flush=True)
    if store:
        dist.barrier()
        dist.destroy_process_group()
    # Not by the interpreter's end: a gloo thread may still hold tensors of the last collective, needs the interpreter
    # to     # let go of them, and ends the process by std::terminate() if that is being torn down.
    os._exit(0)


main()
