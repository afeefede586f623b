# SPDX-License-Identifier: Apache-2.0
"""DistributedFileSystemReader and DistributedFileSystemWriter: what names a directory, or a place in a bucket, for save
and load, in place of checkpoint_id. The reader also serves functions of torch, which read what is on storage."""

import os
from typing import Any, NoReturn

from torch.distributed.checkpoint import storage as torch_storage

from .. import errors
from ..runtime.settings import is_url
from .dcp import StorageReader
from .dcp_functions import program
from .dcp_ids import named_part
from .dcp_series import Stored, stored
from .inner_reader import InnerReader


class DistributedFileSystemWriter:
    """For storage_writer= of async_save and save."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        if options:
            raise errors.UnsupportedError(f"{', '.join(sorted(options))}: the agents write the files, so there is "
                                          "nothing to choose")
        self.path = named_part(path).path

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a DistributedFileSystemWriter has no {name}: it is for save and async_save of "
                             "torch.sagemaker or tierckpt.sagemaker")


class DistributedFileSystemReader(InnerReader):
    """For storage_reader= of load and of torch's functions. After a load it stays with what that has loaded."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = named_part(path).path
        self._found: Stored | None = None
        self._step: int | None = None

    def follow(self, loaded: Any) -> None:
        """From now on reads the version that another reader has loaded."""
        self._found, self._step, self._inner = None, None, None
        if isinstance(loaded, StorageReader):
            self._step = loaded.step
            if loaded.directory is not None and loaded.version is not None and not is_url(loaded.directory):
                self._found = Stored(False, loaded.version, loaded.directory)

    def reset(self, checkpoint_id: Any = None) -> None:
        if checkpoint_id is not None:
            self.path = named_part(checkpoint_id).path
            self.follow(None)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return isinstance(checkpoint_id, (str, os.PathLike))

    def choose(self) -> torch_storage.StorageReader:
        if self._found is None:
            found = stored(program.settings_now(), named_part(self.path), self._step)
            if not found.exists:
                raise errors.NotFoundError(f"nothing was saved as {found.path}")
            self._found = found
        return self._found.reader()
