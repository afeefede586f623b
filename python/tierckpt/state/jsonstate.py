# SPDX-License-Identifier: Apache-2.0
"""Python values to JSON and back, without loss and without pickle.

Standard JSON is kept as it is. Anything else becomes an object with one "$" key: tuples, dicts whose keys are not
strings, bytes, BytesIO objects, floats such as NaN, and tensors, which should be small."""

import base64
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import torch

from .. import errors


def dumps(what: str, value: Any) -> bytes:
    """The value as JSON. `what` names it in errors. Raises UnsupportedError if it has parts that cannot be saved."""
    return json.dumps(_encode(what, value), separators=(",", ":"), allow_nan=False).encode()


def loads(data: bytes) -> Any:
    return _decode(json.loads(data))


def _encode(what: str, value: Any) -> Any:
    if isinstance(value, numpy.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": bytes(value).hex()}
    if isinstance(value, io.BytesIO):
        return {"$bytesio": base64.b64encode(value.getbuffer()).decode()}
    if isinstance(value, list):
        return [_encode(f"{what}[{i}]", item) for i, item in enumerate(value)]
    if type(value) is tuple:
        return {"$tuple": [_encode(f"{what}[{i}]", item) for i, item in enumerate(value)]}
    if isinstance(value, dict):
        return _encode_dict(what, value)
    if torch.is_tensor(value):
        return _encode_tensor(what, value)
    raise errors.UnsupportedError(
        f"{what} is a {type(value).__name__}, which cannot be saved: only JSON values, tuples, "
        "bytes and dense tensors can be")


def _encode_tensor(what: str, value: torch.Tensor) -> dict[str, Any]:
    if value.layout != torch.strided or value.is_meta or value.is_quantized or hasattr(value, "to_local"):
        raise errors.UnsupportedError(
            f"{what} is a tensor of another kind than dense ones of one rank: give its value as a "
            "number (.item()) or list (.tolist())")
    data = value.detach().cpu().contiguous().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
    name, text = str(value.dtype).removeprefix("torch."), base64.b64encode(data.numpy().tobytes()).decode()
    return {"$tensor": [name, list(value.shape), text]}


def _decode_tensor(parts: tuple[str, list[int], str]) -> torch.Tensor:
    name, shape, text = parts
    data = bytearray(base64.b64decode(text))
    dtype = getattr(torch, name)
    return torch.frombuffer(data, dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)


def _encode_dict(what: str, value: dict[str, Any]) -> dict[str, Any]:
    if type(value) is not Counter and all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _encode(f"{what}.{key}", item) for key, item in value.items()}
    items = [[_encode(what, key), _encode(f"{what}[{key!r}]", item)] for key, item in value.items()]
    return {"$counter" if type(value) is Counter else "$items": items}


def _hashable_items(items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    return {_decode(key): _decode(item) for key, item in items}


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$bytes": bytes.fromhex,
    "$bytesio": lambda text: io.BytesIO(base64.b64decode(text)),
    "$tuple": lambda items: tuple(map(_decode, items)),
    "$items": _hashable_items,
    "$tensor": _decode_tensor,
    "$counter": lambda items: Counter(_hashable_items(items)),
}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (key, inner), = value.items()
        if key in _DECODERS:
            return _DECODERS[key](inner)
    return {key: _decode(item) for key, item in value.items()}
