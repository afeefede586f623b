# SPDX-License-Identifier: Apache-2.0
"""The random number generators of a rank: torch's CPU generator as a tensor, the others as JSON."""

import random
from typing import Any

import numpy
import torch

from .blobs import Blob
from .records import Record
from .sharding import Placer


class Rng:
    def __init__(self) -> None:
        self._torch = torch.get_rng_state()

    def record(self, placer: Placer) -> Record:
        return placer.private("rng.torch", lambda: self._torch, reshard="leave")

    def blob(self, capacity: int | None) -> Blob:
        return Blob("rng", self._capture, self._apply, capacity, reshard="leave")

    def _capture(self) -> dict[str, Any]:
        self._torch.copy_(torch.get_rng_state())
        state: dict[str, Any] = {"python": _python_state(), "numpy": _numpy_state()}
        if torch.cuda.is_available():
            state["cuda"] = [bytes(device.tolist()) for device in torch.cuda.get_rng_state_all()]
        return state

    def _apply(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(self._torch)
        version, words, gauss = state["python"]
        random.setstate((version, tuple(_words(words).tolist()), gauss))
        kind, words, *rest = state["numpy"]
        numpy.random.set_state((kind, _words(words), *rest))
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state_all([torch.tensor(list(device), dtype=torch.uint8) for device in state["cuda"]])


def _python_state() -> tuple[Any, ...]:
    version, words, gauss = random.getstate()
    return version, numpy.array(words, dtype="<u4").tobytes(), gauss


def _numpy_state() -> tuple[Any, ...]:
    state: Any = numpy.random.get_state()
    kind, words, *rest = state
    return kind, words.astype("<u4").tobytes(), *rest


def _words(data: bytes) -> "numpy.ndarray[Any, numpy.dtype[numpy.uint32]]":
    return numpy.frombuffer(data, dtype="<u4").astype(numpy.uint32)
