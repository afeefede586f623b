# SPDX-License-Identifier: Apache-2.0
"""What a program without tierckpt does with a published version: python -I load_published.py DIR REFERENCE [STORE].

Loads the version through PyTorch's own reader, into a plain model or, with STORE and RANK and WORLD_SIZE, into one that
is sharded over the ranks, and compares it with the state dict in REFERENCE. Prints "equal" if it is the same.
"""

import os
import sys

sys.modules["tierckpt"] = None  # an import of it fails

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from safetensors import safe_open  # noqa: E402
from torch.distributed.checkpoint import HuggingFaceStorageReader  # noqa: E402
from torch.distributed.tensor import DTensor, distribute_tensor, init_device_mesh, Shard  # noqa: E402


def blank(tensor, mesh):
    empty = torch.full_like(tensor, 99)
    return distribute_tensor(empty, mesh, [Shard(0)]) if mesh and tensor.dim() > 0 else empty


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def main():
    directory, reference_file, *store = sys.argv[1:]
    mesh = None
    if store:
        world = int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", init_method=f"file://{store[0]}", rank=int(os.environ["RANK"]), world_size=world)
        mesh = init_device_mesh("cpu", (world,))
    for name in sorted(os.listdir(directory)):
        if name.endswith(".safetensors"):
            with safe_open(os.path.join(directory, name), "pt") as file:
                assert all(file.get_tensor(key) is not None for key in file.keys())
    reference = torch.load(reference_file)
    state = {key: blank(tensor, mesh) for key, tensor in reference.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(directory), no_dist=not store)
    for key, tensor in reference.items():
        assert torch.equal(whole(state[key]), tensor), key
    print("equal", flush=True)
    if store:
        dist.barrier()
        dist.destroy_process_group()
    # Not by the interpreter's end: a gloo thread may still hold tensors of the last collective, needs the interpreter to
    # let go of them, and ends the process by std::terminate() if that is being torn down.
    os._exit(0)


main()
