# SPDX-License-Identifier: Apache-2.0
"""Python values to JSON and back without loss and without pickle.

Standard JSON is kept as it is. What JSON lacks becomes an object with one "$" key: tuples, dicts whose keys are not
strings, bytes, and floats that are not numbers.
"""

import json
import math
from collections import Counter

import numpy
import torch

from . import errors


def dumps(what: str, value) -> bytes:
    """`what` names the value in errors."""
    return json.dumps(_encode(what, value), separators=(",", ":"), allow_nan=False).encode()


def loads(data: bytes):
    return _decode(json.loads(data))


def _encode(what: str, value):
    if isinstance(value, numpy.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": bytes(value).hex()}
    if isinstance(value, list):
        return [_encode(f"{what}[{i}]", item) for i, item in enumerate(value)]
    if type(value) is tuple:
        return {"$tuple": [_encode(f"{what}[{i}]", item) for i, item in enumerate(value)]}
    if isinstance(value, dict):
        return _encode_dict(what, value)
    hint = "give its value as a number (.item()) or list (.tolist())" if torch.is_tensor(value) else \
        "only JSON values, tuples and bytes can be"
    raise errors.Unsupported(f"{what} is a {type(value).__name__}, which cannot be saved: {hint}")


def _encode_dict(what: str, value: dict):
    if type(value) is not Counter and all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _encode(f"{what}.{key}", item) for key, item in value.items()}
    items = [[_encode(what, key), _encode(f"{what}[{key!r}]", item)] for key, item in value.items()]
    return {"$counter" if type(value) is Counter else "$items": items}


def _hashable_items(items):
    return {_decode(key): _decode(item) for key, item in items}


_DECODERS = {
    "$float": float,
    "$bytes": bytes.fromhex,
    "$tuple": lambda items: tuple(map(_decode, items)),
    "$items": _hashable_items,
    "$counter": lambda items: Counter(_hashable_items(items)),
}


def _decode(value):
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (key, inner), = value.items()
        if key in _DECODERS:
            return _DECODERS[key](inner)
    return {key: _decode(item) for key, item in value.items()}
