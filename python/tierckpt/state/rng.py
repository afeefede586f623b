# SPDX-License-Identifier: Apache-2.0
"""The random number generators of a rank: torch's CPU generator as a tensor, the others as JSON."""

import hashlib
import random
from collections.abc import Collection
from typing import Any

import numpy
import torch

from .blobs import Blob, Derivation, Marks
from .records import Record
from .sharding import Placer


class Rng:
    def __init__(self, elastic: bool = False) -> None:
        """elastic: with another number of ranks each rank gets the generators of the rank of its own number, and a new
        rank derives its own from those of another one. Otherwise all generators stay as they are then."""
        self._torch = torch.get_rng_state()
        self._reshard = "any" if elastic else "leave"

    def record(self, placer: Placer) -> Record:
        return placer.private("rng.torch", lambda: self._torch, reshard=self._reshard)

    def blob(self, capacity: int | None) -> Blob:
        derivation = Derivation(self._marks, self._derive) if self._reshard == "any" else None
        return Blob("rng", self._capture, self._apply, capacity, reshard=self._reshard, derivation=derivation)

    def _capture(self) -> dict[str, Any]:
        self._torch.copy_(torch.get_rng_state())
        state: dict[str, Any] = {"python": _python_state(random.getstate()),
                                 "numpy": _numpy_state(numpy.random.get_state())}
        if torch.cuda.is_available():
            state["cuda"] = [bytes(device.tolist()) for device in torch.cuda.get_rng_state_all()]
        return state

    def _parts(self, state: dict[str, Any]) -> dict[str, bytes]:
        """The generators as bytes; the restored one of torch is in its tensor."""
        parts = {"torch": self._torch.numpy().tobytes(), "python": repr(state["python"]).encode(),
                 "numpy": repr(state["numpy"]).encode()}
        return {**parts, "cuda": b"".join(state["cuda"])} if "cuda" in state else parts

    def _marks(self, state: dict[str, Any]) -> Marks:
        return {name: hashlib.blake2b(part, digest_size=16).hexdigest() for name, part in self._parts(state).items()}

    def _derive(self, state: dict[str, Any], rank: int, alike: Collection[str]) -> dict[str, Any]:
        """Generators that drew the same numbers on all ranks go on to do so, as some programs rely on it. Others are
        seeded with the number of this rank and a digest of the other one's, so that no two ranks draw the same numbers,
        while a second resume of the same version draws the same as the first."""
        drawn = hashlib.blake2b(str(rank).encode(), digest_size=8)
        for part in self._parts(state).values():
            drawn.update(part)
        seed = int.from_bytes(drawn.digest(), "little") >> 1  # torch's seeds are signed
        derived = dict(state)
        if "torch" not in alike:
            self._torch.copy_(torch.Generator().manual_seed(seed).get_state())
        if "python" not in alike:
            derived["python"] = _python_state(random.Random(seed).getstate())
        if "numpy" not in alike:
            derived["numpy"] = _numpy_state(numpy.random.RandomState(seed & 0xFFFFFFFF).get_state())
        if "cuda" not in alike and derived.pop("cuda", None) is not None:
            derived["cuda_seed"] = seed
        return derived

    def _apply(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(self._torch)
        version, words, gauss = state["python"]
        random.setstate((version, tuple(_words(words).tolist()), gauss))
        kind, words, *rest = state["numpy"]
        numpy.random.set_state((kind, _words(words), *rest))
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state_all([torch.tensor(list(device), dtype=torch.uint8) for device in state["cuda"]])
        if "cuda_seed" in state and torch.cuda.is_available():
            torch.cuda.manual_seed_all(state["cuda_seed"])


def _python_state(state: tuple[Any, ...]) -> tuple[Any, ...]:
    version, words, gauss = state
    return version, numpy.array(words, dtype="<u4").tobytes(), gauss


def _numpy_state(state: Any) -> tuple[Any, ...]:
    kind, words, *rest = state
    return kind, words.astype("<u4").tobytes(), *rest


def _words(data: bytes) -> "numpy.ndarray[Any, numpy.dtype[numpy.uint32]]":
    return numpy.frombuffer(data, dtype="<u4").astype(numpy.uint32)
