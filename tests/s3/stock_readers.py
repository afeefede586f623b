"""Opens a published version in a bucket as a program without tierckpt does: stock_readers.py URL REFERENCE [dcp].

By s3fs with safetensors and, with "dcp", torch.distributed.checkpoint. Prints "equal" if it is the state dict in the
file REFERENCE. Endpoint and keys are those of the environment, where s3fs finds them by itself."""

import sys

sys.modules["tierckpt"] = None  # any import of it fails

import fsspec  # noqa: E402
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from safetensors.torch import load  # noqa: E402
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader  # noqa: E402


def tensors_in(url):
    found = {}
    for file in fsspec.open_files(f"{url}/*.safetensors"):
        with file as stream:
            found |= load(stream.read())
    return found


def main():
    url, reference_file, *with_dcp = sys.argv[1:]
    reference = torch.load(reference_file, weights_only=False)
    found = tensors_in(url)
    for name, tensor in reference["model"].items():
        assert torch.equal(found[f"model.{name}"], tensor), name
    if with_dcp:
        state = {"model": {name: torch.zeros_like(tensor) for name, tensor in reference["model"].items()}, "step": 0,
                 "rates": [0.0, 0.0]}
        dcp.load(state, storage_reader=FsspecReader(url), no_dist=True)
        assert state["step"] == reference["step"] and state["rates"] == reference["rates"], state
        for name, tensor in reference["model"].items():
            assert torch.equal(state["model"][name], tensor), name
    print("equal")


main()
