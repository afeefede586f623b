# SPDX-License-Identifier: Apache-2.0
"""The binding of include/tierckpt.h: its structs, and its functions as methods that raise.

It does not depend on torch. ctypes releases the interpreter lock during each call."""

import ctypes
import logging
import os
import weakref
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from .. import errors
from . import installation

MAX_NDIM = 8
MAX_FILE = 127
HEALTH_TEXT = 512
METADATA_KEY = "__file__/.metadata"
"""Of the blob whose content becomes the file .metadata of each version."""
NEWEST = 2**64 - 1
SAVE_MEMORY, SAVE_STORAGE = 0, 1
DUE_NOTHING, DUE_MEMORY, DUE_STORAGE = 0, 1, 2
LAZY, EAGER = 0, 1
HOST, CUDA = 0, 1
RESHARD = {"refuse": 0, "leave": 1, "any": 2}
STAGES = {"copied": 0, "protected": 1, "committed": 2, "drained": 3}

# In the order of TCK_DTYPE_MAP.
DTYPES = ("BOOL", "U8", "I8", "U16", "I16", "F16", "BF16", "U32", "I32", "F32", "U64", "I64", "F64", "C64",
          "F8_E4M3", "F8_E5M2")

ALLGATHER = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)

_PUT = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
_GET = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_size_t))

CHECK = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)

class Version(NamedTuple):
    """Identifies what was saved. Of two versions the greater one is the newer."""

    term: int
    """The term of the job that saved it; each start of the job has a higher one."""
    step: int


NO_VERSION = Version(0, 0)
"""Older than any that is saved."""


class Place(NamedTuple):
    """Where a record or a blob lies in each published version of a layout."""

    file: str
    """A name in the directory of the version."""
    offset: int
    """Where its data begins in the file: behind a head, and with the length of a blob, which has 8 bytes."""
    bytes: int


class Restored(NamedTuple):
    """What a restore has done."""

    version: Version
    bytes_local: int
    """Bytes of this rank, by where they were found: in this node's memory,"""
    bytes_twin: int
    """in the memory of a node whose ranks hold the same,"""
    bytes_peer: int
    """in the memory of another node that held a copy,"""
    bytes_storage: int
    """on storage."""
    newest_step: int
    """The newest step that any rank had begun to save, 0 if unknown. The steps above that of `version` are lost."""
    seconds: float
    """From the call to the last byte in place."""
    resharded: bool
    """Whether the version has another layout, in which case it was read from storage."""
    saved_world_size: int
    """If it was resharded: how many ranks had saved it,"""
    left_count: int
    """and how many records and blobs of this rank were left as they are."""
    passed_over: str
    """Which newer version was not restored, and why; empty if there is none."""


class _Oob(ctypes.Structure):
    _fields_ = [("allgather", ALLGATHER), ("ctx", c_void_p)]


class _Store(ctypes.Structure):
    _fields_ = [("put", _PUT), ("get", _GET), ("ctx", c_void_p)]


class _BootstrapParams(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("rank", c_int), ("world_size", c_int), ("store", _Store),
                ("prefix", c_char_p), ("address", c_char_p), ("timeout_ms", c_int)]


class _AttachParams(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("config_file", c_char_p), ("config_json", c_char_p), ("rank", c_int),
                ("world_size", c_int), ("oob", _Oob)]


class _Record(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("key", c_char_p), ("dtype", c_int), ("ndim", c_uint32),
                ("global_shape", c_uint64 * MAX_NDIM), ("offset", c_uint64 * MAX_NDIM),
                ("local_shape", c_uint64 * MAX_NDIM), ("addr", c_void_p), ("replica_group", c_char_p),
                ("when", c_int), ("memory", c_int), ("device", c_int), ("head", c_char_p), ("head_bytes", c_size_t)]


class _Place(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("file", c_char * (MAX_FILE + 1)), ("offset", c_uint64),
                ("bytes", c_uint64)]


class _Version(ctypes.Structure):
    _fields_ = [("term", c_uint64), ("step", c_uint64)]


class _Restored(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("version", _Version), ("bytes_local", c_uint64),
                ("bytes_twin", c_uint64), ("bytes_peer", c_uint64), ("bytes_storage", c_uint64),
                ("newest_step", c_uint64), ("seconds", c_double), ("resharded", c_int),
                ("saved_world_size", c_uint32), ("left_count", c_uint32), ("passed_over", c_char_p)]


class _Stats(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("saves_started", c_uint64), ("saves_copied", c_uint64),
                ("saves_skipped", c_uint64), ("bytes_copied", c_uint64), ("stall_ns_last", c_uint64),
                ("stall_ns_max", c_uint64), ("stall_ns_total", c_uint64), ("committed_step", c_uint64),
                ("published_step", c_uint64), ("segment_bytes", c_uint64), ("page_bytes", c_uint32)]


class _Health(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("agent_connected", c_int), ("node_lost", c_int), ("storage", c_int),
                ("storage_since_ms", c_uint64), ("undrained_first", c_uint64), ("undrained_newest", c_uint64),
                ("undrained_count", c_uint64), ("shards_short", c_uint64), ("copies_missing", c_uint64),
                ("records_torn", c_int), ("agent_text", c_char * HEALTH_TEXT), ("storage_text", c_char * HEALTH_TEXT),
                ("protection_text", c_char * HEALTH_TEXT)]


@dataclass(frozen=True)
class Health:
    """What this rank knows about its job. Each text is empty while there is nothing to report."""

    agent_connected: bool
    node_lost: bool
    storage_ok: bool
    storage_since: float | None
    """Seconds since 1970."""
    undrained_first: int | None
    """The first and the newest step that did not reach storage since then, and their number."""
    undrained_newest: int | None
    undrained_count: int
    shards_short: int
    copies_missing: int
    records_torn: bool
    """A load failed after it had begun to write, and none has succeeded since: nothing is saved."""
    agent_text: str
    storage_text: str
    protection_text: str


class _Progress(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("call", c_char_p), ("what", c_char_p), ("done_bytes", c_uint64),
                ("total_bytes", c_uint64), ("age_ms", c_uint64), ("still_ms", c_uint64), ("shown", c_int)]


class Progress(NamedTuple):
    """How far a register or a restore is."""

    call: str
    what: str
    done_bytes: int
    """Of that, on this node; the total is 0 if it is not known."""
    total_bytes: int
    age: float
    """Seconds since the call, and since something has moved."""
    still: float
    shown: bool
    """Whether the configuration wants it to be shown."""


class _OpenParams(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("path", c_char_p), ("config_file", c_char_p), ("config_json", c_char_p),
                ("step", c_uint64)]


class _PublishedInfo(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("version", _Version), ("job", c_char_p), ("path", c_char_p),
                ("passed_over", c_char_p), ("wall_ms", c_uint64), ("bytes", c_uint64), ("entry_count", c_uint64),
                ("file_count", c_uint32), ("world_size", c_uint32)]


class _Entry(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("key", c_char_p), ("file", c_char_p), ("bytes", c_uint64),
                ("dtype", c_int), ("ndim", c_uint32), ("global_shape", c_uint64 * MAX_NDIM),
                ("offset", c_uint64 * MAX_NDIM), ("local_shape", c_uint64 * MAX_NDIM), ("blob", c_int),
                ("rank", c_int)]


class _Box(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("key", c_char_p), ("dtype", c_int), ("ndim", c_uint32),
                ("global_shape", c_uint64 * MAX_NDIM), ("offset", c_uint64 * MAX_NDIM),
                ("local_shape", c_uint64 * MAX_NDIM)]


class _ExportParams(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("source", POINTER(_OpenParams)), ("from_memory", c_int),
                ("directory", c_char_p), ("shard_bytes", c_uint64), ("convert", c_int), ("dtype", c_int),
                ("model_files", c_char_p), ("include", POINTER(c_char_p)), ("exclude", POINTER(c_char_p)),
                ("strip_prefix", c_char_p), ("add_prefix", c_char_p), ("names", c_char_p)]


class _Exported(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("version", _Version), ("tensor_count", c_uint64),
                ("file_count", c_uint64), ("bytes", c_uint64)]


class Exported(NamedTuple):
    """What an export has written."""

    version: Version
    tensor_count: int
    file_count: int
    bytes: int


class PublishedInfo(NamedTuple):
    """About a published version."""

    version: Version
    job: str
    path: str
    """Its directory."""
    passed_over: str
    """Which newer version was passed over for this one, and why; empty if none was."""
    wall_ms: int
    """When it was published, in milliseconds since 1970."""
    bytes: int
    """Of all files."""
    entry_count: int
    file_count: int
    world_size: int
    """The number of ranks of the job that saved it."""


class Entry(NamedTuple):
    """A piece of a tensor, or a blob, as a rank has saved it."""

    key: str
    file: str
    bytes: int
    dtype: str
    """One of DTYPES."""
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    """Where the piece begins in the whole, in elements of each dimension."""
    local_shape: tuple[int, ...]
    blob: bool
    rank: int | None
    """The rank that it belongs to; None if it belongs to a group of ranks that hold the same one."""


class Stats(NamedTuple):
    """Counts of this rank since it attached."""

    saves_started: int
    saves_copied: int
    saves_skipped: int
    """Saves that were refused, or for which there was no agent."""
    bytes_copied: int
    stall_ns_last: int
    """Nanoseconds that the last save spent in its call and its fence; also the maximum and the sum of all saves."""
    stall_ns_max: int
    stall_ns_total: int
    committed_step: int
    """The newest step that this term has committed, and that it has published; 0 if there is none."""
    published_step: int
    segment_bytes: int
    """Memory that the agent holds for this rank, and the size of its pages."""
    page_bytes: int


_CLIENT = c_void_p
_BOOTSTRAP = c_void_p
_PUBLISHED = c_void_p
# Name: (result, arguments). A result of None here means "a status, raised unless it is TCK_OK".
_FUNCTIONS = {
    "tck_bootstrap_open": (None, [POINTER(_BootstrapParams), POINTER(_BOOTSTRAP)]),
    "tck_bootstrap_oob": (_Oob, [_BOOTSTRAP]),
    "tck_bootstrap_close": (c_void_p, [_BOOTSTRAP]),
    "tck_attach": (None, [POINTER(_AttachParams), POINTER(_CLIENT)]),
    "tck_add_record": (None, [_CLIENT, POINTER(_Record), POINTER(c_uint32)]),
    "tck_add_blob": (None, [_CLIENT, c_char_p, c_size_t, c_char_p]),
    "tck_set_blob": (None, [_CLIENT, c_char_p, c_void_p, c_size_t]),
    "tck_get_blob": (None, [_CLIENT, c_char_p, c_void_p, c_size_t, POINTER(c_size_t)]),
    "tck_set_address": (None, [_CLIENT, c_uint32, c_void_p]),
    "tck_set_reshard": (None, [_CLIENT, c_char_p, c_int]),
    "tck_register": (None, [_CLIENT]),
    "tck_record_place": (None, [_CLIENT, c_uint32, POINTER(_Place)]),
    "tck_blob_place": (None, [_CLIENT, c_char_p, POINTER(_Place)]),
    "tck_save_due": (None, [_CLIENT, c_uint64, POINTER(c_int)]),
    "tck_save_if_needed": (None, [_CLIENT, c_uint64, POINTER(c_int)]),
    "tck_snapshot": (None, [_CLIENT, c_uint64, c_int]),
    "tck_skip": (None, [_CLIENT, c_uint64, c_char_p]),
    "tck_set_stream": (None, [_CLIENT, c_int, c_void_p]),
    "tck_fence": (None, [_CLIENT]),
    "tck_set_confirm": (None, [_CLIENT, c_int]),
    "tck_set_check": (None, [_CLIENT, CHECK, c_void_p]),
    "tck_confirm": (None, [_CLIENT, c_uint64, c_char_p]),
    "tck_await_copied": (None, [_CLIENT, c_int, POINTER(c_uint64)]),
    "tck_wait": (None, [_CLIENT, c_uint64, c_int, c_int]),
    "tck_save_last": (None, [_CLIENT, c_uint64, c_int]),
    "tck_query": (None, [_CLIENT, POINTER(_Version)]),
    "tck_restore": (None, [_CLIENT, c_uint64, POINTER(_Restored)]),
    "tck_stats": (None, [_CLIENT, POINTER(_Stats)]),
    "tck_records_filled": (None, [_CLIENT]),
    "tck_health": (None, [_CLIENT, POINTER(_Health)]),
    "tck_progress": (c_int, [_CLIENT, POINTER(_Progress)]),
    "tck_published_open": (None, [POINTER(_OpenParams), POINTER(_PUBLISHED)]),
    "tck_published_close": (c_void_p, [_PUBLISHED]),
    "tck_published_errmsg": (c_char_p, [_PUBLISHED]),
    "tck_published_info": (None, [_PUBLISHED, POINTER(_PublishedInfo)]),
    "tck_published_entry": (None, [_PUBLISHED, c_uint64, POINTER(_Entry)]),
    "tck_published_read_entry": (None, [_PUBLISHED, c_uint64, c_uint64, c_uint64, c_void_p]),
    "tck_published_read_box": (None, [_PUBLISHED, POINTER(_Box), c_void_p]),
    "tck_published_read_blob": (None, [_PUBLISHED, c_char_p, c_int, c_void_p, c_size_t, POINTER(c_size_t)]),
    "tck_export": (None, [POINTER(_ExportParams), POINTER(_Exported)]),
    "tck_next_log": (c_int, [POINTER(c_int), c_char_p, c_size_t]),
    "tck_strerror": (c_char_p, [c_int]),
    "tck_errmsg": (c_char_p, [_CLIENT]),
    "tck_errcode": (c_int, [_CLIENT]),
    "tck_version_number": (c_int, []),
    "tck_job_name": (None, [c_char_p, c_char_p, c_char_p, c_size_t]),
}

_LOG_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
_LOG_BYTES = 1024
_NOSPC = errors.NoSpaceError.status
_library = None


def _library_path() -> Path:
    """$TIERCKPT_LIBRARY, or else the library that was installed with this package."""
    chosen = os.environ.get("TIERCKPT_LIBRARY")
    path = Path(chosen) if chosen else installation.LIBRARY
    if not path.is_file():
        raise errors.UnsupportedError(f"no library at {path}: install the package, or set TIERCKPT_LIBRARY")
    return path


def _load_library() -> ctypes.CDLL:
    global _library
    if _library is None:
        library = ctypes.CDLL(str(_library_path()))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = c_int if result is None else result
            function.argtypes = arguments
        if installation.PROGRAMS.is_dir():
            os.environ.setdefault("TIERCKPT_BIN_DIR", str(installation.PROGRAMS))
        _library = library
    return _library


def _text(data: bytes | None) -> str:
    return (data or b"").decode(errors="replace")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def log_lines(logger: logging.Logger) -> None:
    """Writes to the log the lines that the library has collected. The library's own threads must not wait for the lock
    of the interpreter, so the library keeps its lines until they are fetched."""
    if _library is None:
        return
    level, text = c_int(), ctypes.create_string_buffer(_LOG_BYTES)
    while _library.tck_next_log(byref(level), text, _LOG_BYTES):
        logger.log(_LOG_LEVELS[level.value], "%s", text.value.decode(errors="replace"))


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _forked() -> None:
    for client in list(_clients):
        client.leave_to_parent()


os.register_at_fork(after_in_child=_forked)


class Allgather(Protocol):
    """How the library reaches the other ranks: see runtime/world.py."""

    callback: Any
    """An ALLGATHER, or None if there is one rank."""
    context: int | None
    """What it is called with."""

    def reraise(self) -> None: ...


class Store(Protocol):
    """Where ranks find each other, such as a torch.distributed.Store."""

    def set(self, key: str, value: Any, /) -> object: ...

    def check(self, keys: list[str], /) -> bool: ...

    def get(self, key: str, /) -> bytes:
        """Waits until it was set."""


class Bootstrap:
    """A tck_bootstrap_t: an Allgather over a tree of connections between the ranks. Opening it is collective. It is
    closed when nothing refers to it any more, since clients use it, too."""

    def __init__(self, store: Store, prefix: str, *, rank: int, world_size: int, timeout: float = 0) -> None:
        """`timeout` in seconds: how long to wait for another rank each time; 0: half an hour."""
        self._handle = c_void_p()
        self._library = _load_library()
        self._store = store
        self._size = world_size
        self._raised: BaseException | None = None
        calls = _Store(_PUT(self._put), _GET(self._get), None)
        params = _BootstrapParams(ctypes.sizeof(_BootstrapParams), rank, world_size, calls, prefix.encode(), None,
                                  min(int(timeout * 1000), 2**31 - 1))
        self._check(self._library.tck_bootstrap_open(byref(params), byref(self._handle)))
        oob = self._library.tck_bootstrap_oob(self._handle)
        self.callback: Any = oob.allgather
        self.context: int | None = oob.ctx

    def _put(self, _ctx: int | None, key: bytes, value: int, length: int) -> int:
        return self._kept(lambda: self._store.set(key.decode(), ctypes.string_at(value, length)))

    def _get(self, _ctx: int | None, key: bytes, value: int, room: int, length: Any) -> int:
        def copy() -> None:
            self._store.check([key.decode()])  # or a FileStore would return what it has read before
            found = self._store.get(key.decode())[:room]
            ctypes.memmove(value, found, len(found))
            length[0] = len(found)

        return self._kept(copy)

    def _kept(self, call: Callable[[], object]) -> int:
        try:
            call()
            return 0
        except BaseException as error:  # it may not pass through C: _check raises it
            self._raised = error
            return 1

    def _check(self, status: int) -> None:
        raised, self._raised = self._raised, None
        if status != 0:
            text = _text(self._library.tck_errmsg(None)) or _text(self._library.tck_strerror(status))
            raise errors.from_status(status, text) from raised

    def allgather(self, data: bytes) -> list[bytes]:
        """Those of all ranks, which must have the same length. Collective."""
        if not data:
            return [b""] * self._size
        everywhere = ctypes.create_string_buffer(len(data) * self._size)
        self._check(self.callback(self.context, data, ctypes.addressof(everywhere), len(data)))
        whole = everywhere.raw
        return [whole[begin:begin + len(data)] for begin in range(0, len(whole), len(data))]

    def works(self) -> bool:
        """Whether all ranks can still use it: if not, they open another one. Collective."""
        try:
            self.allgather(b"\0")
        except errors.Error:
            return False
        return True

    def reraise(self) -> None:
        """An allgather over it raises nothing."""

    def __del__(self) -> None:
        if self._handle:
            self._library.tck_bootstrap_close(self._handle)


class Watch(Protocol):
    """Confirms snapshots: see core/watch.py."""

    gave_up: bool

    def begun(self, step: int) -> None: ...

    def settle(self) -> None: ...

    def stop(self) -> None: ...


class Client:
    """A tck_client_t. It is attached when it is created, and invalid after detach. Methods raise the exception of the
    status."""

    def __init__(self, *, config_file: str | None, config_json: str | None, rank: int, world_size: int,
                 oob: Allgather) -> None:
        self._library = _load_library()
        self._oob = oob
        self._forked_from: int | None = None
        self.watch: Watch | None = None
        """Set if each snapshot has to be confirmed."""
        self.rank = rank
        self.world_size = world_size
        self._handle = c_void_p()
        params = _AttachParams(ctypes.sizeof(_AttachParams), _bytes(config_file), _bytes(config_json), rank,
                               world_size, _Oob(oob.callback or ALLGATHER(), oob.context))
        self._check(self._library.tck_attach(byref(params), byref(self._handle)))
        self._pid = os.getpid()
        _clients.add(self)

    def _check(self, status: int) -> None:
        self._oob.reraise()
        if status != 0:
            raise errors.from_status(status, self.errmsg() or self._strerror(status))

    def errmsg(self) -> str:
        """The text of the last failure, or why the last save was not started."""
        return _text(self._library.tck_errmsg(self._handle))

    def _strerror(self, status: int) -> str:
        return _text(self._library.tck_strerror(status))

    def _live(self) -> c_void_p:
        if not self._handle:
            raise errors.InvalidArgumentError(
                "the checkpoint is closed" if self._forked_from is None else
                f"the checkpoint belongs to process {self._forked_from}, from which this one "
                "was forked: only that one can use it")
        return self._handle

    @property
    def is_open(self) -> bool:
        return bool(self._handle)

    def detach(self, job_done: bool) -> None:
        if self.watch is not None and self._handle:
            try:
                self.fence()
            except errors.Error:
                pass  # then what is not confirmed is discarded
            self.watch.stop()  # an interrupt before this is over leaves all as it was: the thread uses the handle
        self.watch = None
        handle, self._handle = self._handle, c_void_p()  # first: an interrupt may come right after the call
        if handle:
            self._library.tck_detach(handle, int(job_done))

    def leave_to_parent(self) -> None:
        """For a child made by fork: threads and connection belong to the parent."""
        self.watch = None
        if self._handle:
            self._forked_from, self._handle = self._pid, c_void_p()

    def add_record(self, *, key: str, dtype: str, global_shape: Sequence[int], offset: Sequence[int],
                   local_shape: Sequence[int], address: int, group: str | None, when: int,
                   cuda_device: int | None = None, head: bytes = b"") -> int:
        shape_type = c_uint64 * MAX_NDIM
        record = _Record(ctypes.sizeof(_Record), _bytes(key), DTYPES.index(dtype), len(global_shape),
                         shape_type(*global_shape), shape_type(*offset), shape_type(*local_shape), address,
                         _bytes(group), when, HOST if cuda_device is None else CUDA, cuda_device or 0, head, len(head))
        number = c_uint32()
        self._check(self._library.tck_add_record(self._live(), byref(record), byref(number)))
        return number.value

    def set_address(self, record: int, address: int) -> None:
        self._check(self._library.tck_set_address(self._live(), record, address))

    def add_blob(self, key: str, capacity: int) -> None:
        self._check(self._library.tck_add_blob(self._live(), _bytes(key), capacity, None))

    def set_blob(self, key: str, data: bytes) -> None:
        self._check(self._library.tck_set_blob(self._live(), _bytes(key), data, len(data)))

    def get_blob(self, key: str) -> bytes:
        handle, name, size = self._live(), _bytes(key), c_size_t()
        status = self._library.tck_get_blob(handle, name, None, 0, byref(size))
        if status != _NOSPC:
            self._check(status)
            return b""
        data = ctypes.create_string_buffer(size.value)
        self._check(self._library.tck_get_blob(handle, name, data, size.value, byref(size)))
        return data.raw

    def set_reshard(self, key: str, kind: str) -> None:
        self._check(self._library.tck_set_reshard(self._live(), _bytes(key), RESHARD[kind]))

    def register(self) -> None:
        self._check(self._library.tck_register(self._live()))

    def record_place(self, record: int) -> Place:
        """Of a record of the registered layout."""
        place = _Place(ctypes.sizeof(_Place))
        self._check(self._library.tck_record_place(self._live(), record, byref(place)))
        return Place(_text(place.file), place.offset, place.bytes)

    def blob_place(self, key: str) -> Place:
        place = _Place(ctypes.sizeof(_Place))
        self._check(self._library.tck_blob_place(self._live(), _bytes(key), byref(place)))
        return Place(_text(place.file), place.offset, place.bytes)

    def save_due(self, step: int) -> int:
        """DUE_NOTHING, DUE_MEMORY or DUE_STORAGE."""
        due = c_int()
        self._check(self._library.tck_save_due(self._live(), step, byref(due)))
        return due.value

    def save_if_needed(self, step: int) -> bool:
        started = c_int()
        self._check(self._library.tck_save_if_needed(self._live(), step, byref(started)))
        return self._begun(step, bool(started.value))

    def _begun(self, step: int, started: bool) -> bool:
        if started and self.watch is not None:
            self.watch.begun(step)
        return started

    def snapshot(self, step: int, flags: int) -> bool:
        """Whether a save was started; errmsg() says why not."""
        before = self.stats().saves_started
        self._check(self._library.tck_snapshot(self._live(), step, flags))
        return self._begun(step, self.stats().saves_started > before)

    def skip(self, step: int, why: str) -> None:
        self._check(self._library.tck_skip(self._live(), step, _bytes(why)))

    def set_stream(self, device: int, stream: int) -> None:
        self._check(self._library.tck_set_stream(self._live(), device, stream))

    def fence(self) -> None:
        self._check(self._library.tck_fence(self._live()))
        if self.watch is not None:
            self.watch.settle()

    def set_confirm(self, on: bool) -> None:
        self._check(self._library.tck_set_confirm(self._live(), int(on)))

    def set_check(self, check: Callable[[], Callable[[], None] | None]) -> None:
        """The function that the weak reference `check` refers to is called in each restore, before anything but blobs
        is changed. If it raises, the restore is refused. The reference is weak because the client is the last part of a
        checkpoint to be freed."""
        def ask(_ctx: int | None, why_not: int, cap: int) -> int:
            try:
                function = check()
                if function is not None:
                    function()
            except BaseException as error:  # none may pass through C
                text = (str(error) or type(error).__name__).encode()[:cap - 1] + b"\0"
                ctypes.memmove(why_not, text, len(text))
                return 1
            return 0
        self._asks = CHECK(ask)
        self._check(self._library.tck_set_check(self._live(), self._asks, None))

    def confirm(self, step: int, why_not: str | None) -> None:
        self._library.tck_confirm(self._live(), step, _bytes(why_not))

    def await_copied(self, timeout_ms: int) -> int | None:
        """The step of the snapshot that is copied and has to be confirmed, None if there is none. Raises TimedOutError.
        Another thread may call it beside the other functions, since it sets no error text."""
        step = c_uint64()
        status = self._library.tck_await_copied(self._live(), timeout_ms, byref(step))
        if status == errors.TimedOutError.status:
            raise errors.TimedOutError(f"the snapshot under way is not copied after {timeout_ms} ms")
        return step.value if status == 0 else None

    def wait(self, step: int, stage: int, timeout_ms: int) -> None:
        self._check(self._library.tck_wait(self._live(), step, stage, timeout_ms))

    def save_last(self, step: int, timeout_ms: int) -> None:
        self.fence()
        self._check(self._library.tck_save_last(self._live(), step, timeout_ms))

    def query(self) -> Version:
        version = _Version()
        self._check(self._library.tck_query(self._live(), byref(version)))
        return Version(version.term, version.step)

    def restore(self, step: int) -> Restored:
        self.fence()
        out = _Restored(ctypes.sizeof(_Restored))
        self._check(self._library.tck_restore(self._live(), step, byref(out)))
        return Restored(Version(out.version.term, out.version.step), out.bytes_local, out.bytes_twin,
                        out.bytes_peer, out.bytes_storage, out.newest_step, out.seconds, bool(out.resharded),
                        out.saved_world_size, out.left_count, (out.passed_over or b"").decode(errors="replace"))

    def records_filled(self) -> None:
        """Everything that a failed restore may have written was filled by other means."""
        self._check(self._library.tck_records_filled(self._live()))

    def stats(self) -> Stats:
        out = _Stats(ctypes.sizeof(_Stats))
        self._check(self._library.tck_stats(self._live(), byref(out)))
        return Stats(**{name: getattr(out, name) for name in Stats._fields})

    def health(self) -> Health:
        out = _Health(ctypes.sizeof(_Health))
        self._check(self._library.tck_health(self._live(), byref(out)))
        texts = (text.decode(errors="replace") for text in (out.agent_text, out.storage_text, out.protection_text))
        good, none = out.storage == 0, out.undrained_count == 0
        return Health(bool(out.agent_connected), bool(out.node_lost), good,
                      None if good else out.storage_since_ms / 1000, None if none else out.undrained_first,
                      None if none else out.undrained_newest, out.undrained_count, out.shards_short,
                      out.copies_missing, bool(out.records_torn), *texts)

    def progress(self) -> Progress | None:
        """Of the register or restore that another thread is in; None if there is none."""
        out = _Progress(ctypes.sizeof(_Progress))
        if not self._handle or not self._library.tck_progress(self._handle, byref(out)):
            return None
        return Progress(_text(out.call), _text(out.what), out.done_bytes, out.total_bytes, out.age_ms / 1000,
                        out.still_ms / 1000, bool(out.shown))


class Published:
    """A tck_published_t: a published version, open until close."""

    def __init__(self, *, path: str | None = None, config_file: str | None = None, config_json: str | None = None,
                 step: int = NEWEST) -> None:
        self._library = _load_library()
        self._handle = c_void_p()
        params = _OpenParams(ctypes.sizeof(_OpenParams), _bytes(path), _bytes(config_file), _bytes(config_json), step)
        self._check(self._library.tck_published_open(byref(params), byref(self._handle)))

    def _check(self, status: int) -> None:
        if status != 0:
            text = self._library.tck_published_errmsg(self._handle).decode(errors="replace")
            raise errors.from_status(status, text or self._library.tck_strerror(status).decode())

    def _live(self) -> c_void_p:
        if not self._handle:
            raise errors.InvalidArgumentError("the published version is closed")
        return self._handle

    def close(self) -> None:
        if self._handle:
            self._library.tck_published_close(self._handle)
            self._handle = c_void_p()

    def info(self) -> PublishedInfo:
        out = _PublishedInfo(ctypes.sizeof(_PublishedInfo))
        self._check(self._library.tck_published_info(self._live(), byref(out)))
        texts = (out.job.decode(), os.fsdecode(out.path), out.passed_over.decode(errors="replace"))
        return PublishedInfo(Version(out.version.term, out.version.step), *texts, out.wall_ms, out.bytes,
                             out.entry_count, out.file_count, out.world_size)

    def entry(self, index: int) -> Entry:
        out = _Entry(ctypes.sizeof(_Entry))
        self._check(self._library.tck_published_entry(self._live(), index, byref(out)))
        return Entry(out.key.decode(), out.file.decode(), out.bytes, DTYPES[out.dtype],
                     tuple(out.global_shape[:out.ndim]), tuple(out.offset[:out.ndim]),
                     tuple(out.local_shape[:out.ndim]), bool(out.blob), None if out.rank < 0 else out.rank)

    def read_entry(self, index: int, first: int, size: int, address: int) -> None:
        self._check(self._library.tck_published_read_entry(self._live(), index, first, size, address))

    def read_box(self, *, key: str, dtype: str, global_shape: Sequence[int], offset: Sequence[int],
                 shape: Sequence[int], address: int) -> None:
        shape_type = c_uint64 * MAX_NDIM
        box = _Box(ctypes.sizeof(_Box), _bytes(key), DTYPES.index(dtype), len(global_shape),
                   shape_type(*global_shape), shape_type(*offset), shape_type(*shape))
        self._check(self._library.tck_published_read_box(self._live(), byref(box), address))

    def read_blob(self, key: str, rank: int | None) -> bytes:
        handle, name, size, whose = self._live(), _bytes(key), c_size_t(), -1 if rank is None else rank
        status = self._library.tck_published_read_blob(handle, name, whose, None, 0, byref(size))
        if status != _NOSPC:
            self._check(status)
            return b""
        data = ctypes.create_string_buffer(size.value)
        self._check(self._library.tck_published_read_blob(handle, name, whose, data, size.value, byref(size)))
        return data.raw


def version() -> str:
    """The version of the library: "major.minor.patch"."""
    number: int = _load_library().tck_version_number()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def job_name(*, config_file: str | None = None, config_json: str | None = None) -> str:
    """The configured name of the job, or the name that is derived from save_dir."""
    library, name = _load_library(), ctypes.create_string_buffer(64)
    status = library.tck_job_name(_bytes(config_file), _bytes(config_json), name, len(name))
    if status != 0:
        raise errors.from_status(status, library.tck_errmsg(None).decode(errors="replace"))
    return name.value.decode()


def export(*, directory: str, path: str | None = None, config_file: str | None = None, config_json: str | None = None,
           step: int = NEWEST, from_memory: bool = False, shard_bytes: int = 0, dtype: str | None = None,
           model_files: str | None = None, include: Sequence[str] = (), exclude: Sequence[str] = (),
           strip_prefix: str | None = None, add_prefix: str | None = None, names: str | None = None) -> Exported:
    """See core/published.py."""
    library = _load_library()
    source = _OpenParams(ctypes.sizeof(_OpenParams), _bytes(path), _bytes(config_file), _bytes(config_json), step)
    convert, kind = (0, 0) if dtype is None else (1, DTYPES.index(dtype))
    params = _ExportParams(ctypes.sizeof(_ExportParams), ctypes.pointer(source), int(from_memory), _bytes(directory),
                           shard_bytes, convert, kind, _bytes(model_files), _texts(include), _texts(exclude),
                           _bytes(strip_prefix), _bytes(add_prefix), _bytes(names))
    out = _Exported(ctypes.sizeof(_Exported))
    status = library.tck_export(byref(params), byref(out))
    if status != 0:
        raise errors.from_status(status, library.tck_published_errmsg(None).decode(errors="replace"))
    return Exported(Version(out.version.term, out.version.step), out.tensor_count, out.file_count, out.bytes)


def _texts(texts: Sequence[str]) -> "ctypes.Array[c_char_p]":
    """A C array that ends with NULL."""
    return (c_char_p * (len(texts) + 1))(*map(_bytes, texts), None)
