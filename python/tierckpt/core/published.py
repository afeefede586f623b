# SPDX-License-Identifier: Apache-2.0
"""Reading published versions, without agents and without the job that saved them.

    with tierckpt.open_published("tierckpt.json") as version:
        print(version.step, version.keys)
        weight = version.read("layers.0.weight")"""

import math
import operator
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import errors
from ..runtime import native
from ..runtime.settings import ConfigSource, Overrides, configuration
from ..state.records import TORCH_DTYPES, saved_dtype, saved_shape
from .pieces import Box, Pieces, is_written_in_place

_MANIFEST = "manifest.json"
_LIMIT_S = 20  # the default of storage_timeout_ms: a path brings no configuration
_EXPORTS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}


def open_published(source: ConfigSource = None, *, step: int | None = None,
                   overrides: dict[str, Any] | None = None) -> "Published":
    """Opens the newest published version, or that of a step.

    source     the directory of a version; or a configuration as for init: the path of a JSON file, or a dict
    step       None: the newest
    overrides  dict of keys that override those of the configuration

    Raises NotFoundError if there is none, and TimedOutError if storage does not answer within storage_timeout_ms. If a
    newer version is damaged, it is passed over with a warning."""
    published = Published(native.Published(**_where(source, step, overrides)))
    if published.info.passed_over:
        warnings.warn(f"passed over: {published.info.passed_over}", stacklevel=2)
    return published


def is_directory(source: Any) -> bool:
    """Whether this is the path of a directory, that is, of a version and not of a configuration. Raises TimedOutError
    if storage hangs."""
    return isinstance(source, (str, os.PathLike)) and _within_limit(os.path.isdir, os.fspath(source))


def _within_limit(look: Callable[[str], bool], path: str) -> bool:
    """What `look` returns for the path. If storage hangs, a thread is left behind and TimedOutError is raised."""
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
           add_prefix: str | None = None, names: str | os.PathLike[str] | None = None) -> native.Exported:
    """Writes the weights of the model as a Hugging Face checkpoint, which from_pretrained opens. The same as `tierckpt
    export`.

    directory    created; it must not exist, but its parent must
    source, step, overrides   the version, as for open_published
    memory       True: export the newest version in the agents' memory, which they publish first; source is the
                 configuration
    shard_size   bytes of tensors per file; 0: one file
    dtype        torch.float32, bfloat16, float16 or float64: floating-point weights are rounded to it; None: they are
                 not
    model_files  directory whose config.json, tokenizer files and the like are copied beside the weights
    include, exclude   shell patterns of tensors: which to export in place of all weights of the model, and which to
                 leave out
    names        a mapping to the names of a model family: "megatron-llama", "megatron-gpt2", or the path of a file,
                 which has a slash
    strip_prefix, add_prefix   applied to the names in this order

    Returns the version and the numbers of tensors, files and bytes. Raises ExistsError if the directory is there, and
    LayoutError or UnsupportedError, with nothing written, if a tensor cannot be made whole."""
    if dtype is not None and dtype not in _EXPORTS:
        raise errors.InvalidArgumentError(f"dtype {dtype} is none of {', '.join(map(str, _EXPORTS))}")
    return native.export(**_where(source, step, overrides), directory=os.fspath(directory), from_memory=memory,
                          shard_bytes=shard_size, dtype=None if dtype is None else _EXPORTS[dtype],
                          model_files=None if model_files is None else os.fspath(model_files), include=list(include),
                          exclude=list(exclude), strip_prefix=strip_prefix, add_prefix=add_prefix,
                          names=None if names is None else os.fspath(names))


class Published:
    """A published version. Every byte is checked against the version's digests before it is returned. Use it from one
    thread at a time. As a context manager it closes itself."""

    def __init__(self, opened: native.Published) -> None:
        self._native = opened
        self.info: native.PublishedInfo = opened.info()
        """Version, job, directory and sizes."""
        self.entries: list[native.Entry] = [opened.entry(i) for i in range(self.info.entry_count)]
        """The pieces of tensors and the blobs that the ranks have saved, sorted by key."""
        self._tensors = {entry.key: entry for entry in self.entries if not entry.blob}
        self._pieces = Pieces()

    @property
    def version(self) -> native.Version:
        return self.info.version

    @property
    def step(self) -> int:
        return self.info.version.step

    @property
    def keys(self) -> list[str]:
        """The keys of its tensors."""
        return list(self._tensors)

    def __contains__(self, key: str) -> bool:
        """Whether there is a tensor of this key."""
        return key in self._tensors

    def _entry(self, key: str) -> native.Entry:
        if key not in self._tensors:
            raise errors.NotFoundError(f"{self.info.path} has no tensor {key!r}")
        return self._tensors[key]

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of the whole tensor. Raises NotFoundError if there is none of this key; so do the methods below."""
        return self._entry(key).global_shape

    def dtype(self, key: str) -> torch.dtype:
        return TORCH_DTYPES[self._entry(key).dtype]

    def read(self, key: str) -> torch.Tensor:
        """The whole tensor, on the CPU. Raises CorruptError if it is damaged, IoError if it cannot be read."""
        shape = self.shape(key)
        return self.read_box(key, (0,) * len(shape), shape)

    def read_box(self, key: str, offset: Iterable[int], shape: Iterable[int],
                 out: torch.Tensor | None = None) -> torch.Tensor:
        """A part of a tensor, in whatever pieces it was saved.

        offset, shape  where the part begins in the whole tensor, and its size, in elements of each dimension
        out            tensor of this shape and dtype to read into, on any device; None: a new one, on the CPU. One on a
                       device, or one that is not contiguous, is filled in pieces of at most 64 MiB, and never lies on
                       the host as a whole. When this returns, all of it is in place

        Returns `out`. Raises InvalidArgumentError if the part or `out` does not fit."""
        whole, dtype = self._entry(key), self.dtype(key)
        offset, shape = tuple(offset), tuple(shape)
        if out is None:
            out = torch.empty(shape, dtype=dtype)
        _check_out(key, out, shape, dtype)
        if not len(offset) == len(shape) == len(whole.global_shape):
            raise errors.InvalidArgumentError(f"{key} has {len(whole.global_shape)} dimensions, offset and shape have "
                                              f"{len(offset)} and {len(shape)}")

        def read(box: Box, address: int) -> None:
            begin = tuple(map(operator.add, offset, box[0]))
            self._native.read_box(key=key, dtype=whole.dtype, global_shape=whole.global_shape, offset=begin,
                                  shape=box[1], address=address)

        return self._read_into(out, read)

    def read_entry(self, index: int, out: torch.Tensor | None = None) -> torch.Tensor:
        """Reads one of `entries` as it was saved. Tensors that belong to single ranks can only be read in this way.
        `out` is as for read_box."""
        entry, dtype = self.entries[index], TORCH_DTYPES[self.entries[index].dtype]
        if out is None:
            out = torch.empty(entry.local_shape, dtype=dtype)
        _check_out(entry.key, out, tuple(entry.local_shape), dtype)

        def read(box: Box, address: int) -> None:
            first = _place_of(box[0], entry.local_shape) * dtype.itemsize
            self._native.read_entry(index, first, math.prod(box[1]) * dtype.itemsize, address)

        return self._read_into(out, read)

    def _read_into(self, out: torch.Tensor, read: Callable[[Box, int], None]) -> torch.Tensor:
        if is_written_in_place(out):
            shape = tuple(saved_shape(out))
            read(((0,) * len(shape), shape), out.data_ptr())
        else:
            self._pieces.fill(out, read)
        return out

    def blob(self, key: str, rank: int | None = None) -> bytes:
        """The bytes of a blob. `rank` selects the rank that saved it, if several ranks have a blob of this key."""
        return self._native.read_blob(key, rank)

    def close(self) -> None:
        self._pieces = Pieces()
        self._native.close()

    def __enter__(self) -> "Published":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _check_out(key: str, out: torch.Tensor, shape: tuple[Any, ...], dtype: torch.dtype) -> None:
    if tuple(saved_shape(out)) != shape or saved_dtype(out) != dtype:
        raise errors.InvalidArgumentError(f"{key}: out is {out.dtype} {tuple(out.shape)}, not {dtype} {shape}")
    if out.is_meta or out.layout != torch.strided:
        kind = "on the meta device" if out.is_meta else out.layout
        raise errors.InvalidArgumentError(f"{key}: out is {kind}, and only a dense tensor with memory of its own can "
                                          "be read into")


def _place_of(offset: tuple[int, ...], shape: Sequence[int]) -> int:
    """How many elements of a tensor of this shape lie before this one."""
    place = 0
    for at, size in zip(offset, shape, strict=True):
        place = place * size + at
    return place
