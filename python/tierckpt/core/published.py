# SPDX-License-Identifier: Apache-2.0
"""Reading what was published, without agents and without the job that saved it.

    with tierckpt.open_published("tierckpt.json") as version:
        print(version.step, version.keys)
        weight = version.read("layers.0.weight")
"""

import os
import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .. import errors
from ..runtime import native
from ..runtime.settings import ConfigSource, Overrides, configuration
from ..state.records import TORCH_DTYPES

_MANIFEST = "manifest.json"
_LIMIT_S = 20  # the default of storage_timeout_ms: a path brings no configuration
_EXPORTS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}


def open_published(source: ConfigSource = None, *, step: int | None = None,
                   overrides: dict[str, Any] | None = None) -> "Published":
    """Opens the newest published version, or the newest of a step.

    source     a version's directory; or the configuration, as for init: path of a JSON file, or a dict
    overrides  dict of keys that win over those of the configuration

    Raises NotFoundError if there is none, TimedOutError if storage hangs (storage_timeout_ms). A newer version that
    is damaged is passed over with a warning, as agents do."""
    published = Published(native.Published(**_where(source, step, overrides)))
    if published.info.passed_over:
        warnings.warn(f"passed over: {published.info.passed_over}", stacklevel=2)
    return published


def is_directory(source: Any) -> bool:
    """Whether it is the path of a directory: then it is a version's, and no configuration. TimedOutError if storage
    hangs."""
    return isinstance(source, (str, os.PathLike)) and _within_limit(os.path.isdir, os.fspath(source))


def _within_limit(look: Callable[[str], bool], path: str) -> bool:
    """What `look` returns for the path. Storage that hangs blocks a thread, but not the caller."""
    said = []
    thread = threading.Thread(target=lambda: said.append(look(path)), daemon=True)
    thread.start()
    thread.join(_LIMIT_S)
    if not said:
        raise errors.TimedOutError(f"{path}: storage hangs: it has not answered for {_LIMIT_S * 1000:.0f} ms")
    return said[0]


def _where(source: ConfigSource, step: int | None, overrides: Overrides) -> dict[str, Any]:
    if isinstance(source, (str, os.PathLike)) and is_directory(source) \
            and _within_limit(os.path.isfile, os.path.join(source, _MANIFEST)):
        if step is not None or overrides is not None:
            raise errors.InvalidArgumentError(
                f"{os.fspath(source)} is a version: step= and overrides= say which of a job's")
        return {"path": os.fspath(source)}
    return {**configuration(source, overrides), "step": native.NEWEST if step is None else step}


def export(directory: str | os.PathLike[str], source: ConfigSource = None, *, step: int | None = None,
           overrides: dict[str, Any] | None = None, memory: bool = False, shard_size: int = 5 << 30,
           dtype: torch.dtype | None = None, model_files: str | os.PathLike[str] | None = None,
           include: Iterable[str] = (), exclude: Iterable[str] = (), strip_prefix: str | None = None,
           add_prefix: str | None = None) -> native.Exported:
    """Writes the model's weights as one Hugging Face checkpoint, which from_pretrained opens. Like `tierckpt export`.

    directory    is made; it must not be there, its parent must
    source, step, overrides   the version, as for open_published
    memory       the newest version in the agents' memory instead; source is the configuration. The agents publish it
                 first
    shard_size   bytes of tensors per file; 0: a single file
    dtype        torch.float32, bfloat16, float16 or float64: what floating-point weights are rounded to; None: none
    model_files  directory whose config.json, tokenizer files and the like are copied beside the weights
    include, exclude   patterns as of a shell, of the keys that are exported instead of all weights of the model, and
                 of those that are not
    strip_prefix, add_prefix   of the keys, in this order

    Returns version, tensor_count, file_count, bytes."""
    if dtype is not None and dtype not in _EXPORTS:
        raise errors.InvalidArgumentError(f"dtype {dtype} is none of {', '.join(map(str, _EXPORTS))}")
    return native.export(**_where(source, step, overrides), directory=os.fspath(directory), from_memory=memory,
                          shard_bytes=shard_size, dtype=None if dtype is None else _EXPORTS[dtype],
                          model_files=None if model_files is None else os.fspath(model_files), include=list(include),
                          exclude=list(exclude), strip_prefix=strip_prefix, add_prefix=add_prefix)


class Published:
    """A published version. Every byte is checked against the version's digests before it is handed out. Use it from
    one thread at a time; as a context manager it closes itself."""

    def __init__(self, opened: native.Published) -> None:
        self._native = opened
        self.info: native.PublishedInfo = opened.info()
        """Version, job, directory and sizes."""
        self.entries: list[native.Entry] = [opened.entry(i) for i in range(self.info.entry_count)]
        """The pieces of tensors and the blobs that the ranks have saved, sorted by key."""
        self._tensors = {entry.key: entry for entry in self.entries if not entry.blob}

    @property
    def version(self) -> native.Version:
        return self.info.version

    @property
    def step(self) -> int:
        return self.info.version.step

    @property
    def keys(self) -> list[str]:
        """Of the tensors."""
        return list(self._tensors)

    def __contains__(self, key: str) -> bool:
        """Is there a tensor of this key?"""
        return key in self._tensors

    def _entry(self, key: str) -> native.Entry:
        if key not in self._tensors:
            raise errors.NotFoundError(f"{self.info.path} has no tensor {key!r}")
        return self._tensors[key]

    def shape(self, key: str) -> tuple[int, ...]:
        """Of the whole tensor."""
        return self._entry(key).global_shape

    def dtype(self, key: str) -> torch.dtype:
        return TORCH_DTYPES[self._entry(key).dtype]

    def read(self, key: str) -> torch.Tensor:
        """The whole tensor."""
        shape = self.shape(key)
        return self.read_box(key, (0,) * len(shape), shape)

    def read_box(self, key: str, offset: Iterable[int], shape: Iterable[int],
                 out: torch.Tensor | None = None) -> torch.Tensor:
        """The part of a tensor that begins at offset, whatever pieces it was saved in: a new tensor, or out, which
        must be contiguous, on the CPU, and of this shape and dtype."""
        whole, dtype = self._entry(key), self.dtype(key)
        offset, shape = tuple(offset), tuple(shape)
        if out is None:
            out = torch.empty(shape, dtype=dtype)
        _check_out(key, out, shape, dtype)
        if not len(offset) == len(shape) == len(whole.global_shape):
            raise errors.InvalidArgumentError(f"{key} has {len(whole.global_shape)} dimensions, offset and shape have "
                                              f"{len(offset)} and {len(shape)}")
        self._native.read_box(key=key, dtype=whole.dtype, global_shape=whole.global_shape, offset=offset, shape=shape,
                              address=out.data_ptr())
        return out

    def read_entry(self, index: int) -> torch.Tensor:
        """One of `entries` as it was saved: the only way to what several ranks each have as their own."""
        entry = self.entries[index]
        out = torch.empty(entry.local_shape, dtype=TORCH_DTYPES[entry.dtype])
        self._native.read_entry(index, 0, entry.bytes, out.data_ptr())
        return out

    def blob(self, key: str, rank: int | None = None) -> bytes:
        """The bytes of a blob; rank says whose if several ranks have one of this key."""
        return self._native.read_blob(key, rank)

    def close(self) -> None:
        self._native.close()

    def __enter__(self) -> "Published":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _check_out(key: str, out: torch.Tensor, shape: tuple[Any, ...], dtype: torch.dtype) -> None:
    if tuple(out.shape) != shape or out.dtype != dtype:
        raise errors.InvalidArgumentError(f"{key}: out is {out.dtype} {tuple(out.shape)}, not {dtype} {shape}")
    if out.device.type != "cpu" or not out.is_contiguous():
        raise errors.InvalidArgumentError(f"{key}: out must be a contiguous tensor on the CPU")
