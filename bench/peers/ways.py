# SPDX-License-Identifier: Apache-2.0
"""One class per way to save a state. save() returns when the trainer may continue; before_step() when it may change its
tensors again (its time is stall too); finish() when the save has got as far as that way ever says: `complete`."""

import os
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import agent


class Way:
    world = 1  # ranks
    share = 1  # of the state that fits beside what the way keeps
    complete = "written"
    overlaps = False  # something goes on between save and before_step, which computing can hide

    def __init__(self, state, directory):
        self.state = state
        self.directory = directory

    def path(self, step):
        return os.path.join(self.directory, f"step{step}")

    def before_step(self):
        pass

    def finish(self):
        pass

    def clean(self, step):
        """Not timed."""
        path = self.path(step)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.remove(path)

    def close(self):
        pass


class TorchSave(Way):
    def save(self, step):
        torch.save(self.state.tensors, self.path(step))


class Safetensors(Way):
    def __init__(self, state, directory):
        super().__init__(state, directory)
        from safetensors.torch import save_file
        self._save_file = save_file

    def save(self, step):
        self._save_file(self.state.tensors, self.path(step))


class DcpSave(Way):
    complete = "written and synced"

    def save(self, step):
        dcp.save(self.state.tensors, checkpoint_id=self.path(step))


class DcpAsyncThread(Way):
    complete = "written and synced"
    overlaps = True
    kind = dcp.state_dict_saver.AsyncCheckpointerType.THREAD
    stager = None

    def save(self, step):
        self._saving = dcp.async_save(self.state.tensors, checkpoint_id=self.path(step),
                                      async_checkpointer_type=self.kind, async_stager=self.stager)

    def before_step(self):
        staged = getattr(self._saving, "staging_completion", None)
        if staged is not None:
            staged.result()

    def finish(self):
        getattr(self._saving, "upload_completion", self._saving).result()


class DcpAsyncProcess(DcpAsyncThread):
    kind = dcp.state_dict_saver.AsyncCheckpointerType.PROCESS


class DcpAsyncShared(DcpAsyncProcess):
    """Staging memory that is kept and shared with the writing process."""

    def __init__(self, state, directory):
        super().__init__(state, directory)
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
        self.stager = DefaultStager(StagingOptions(use_pinned_memory=False, use_shared_memory=True,
                                                   use_async_staging=False, use_non_blocking_copy=False))

    def close(self):
        self.stager.close()


class DcpAsyncPinned(DcpAsyncThread):
    """Of tensors on a GPU: staged in pinned memory that is kept, in the background."""

    def __init__(self, state, directory):
        super().__init__(state, directory)
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
        self.stager = DefaultStager(StagingOptions(use_pinned_memory=True, use_shared_memory=False,
                                                   use_async_staging=True, use_non_blocking_copy=True))

    def close(self):
        self.stager.close()


class TorchCheckpointing(Way):
    overlaps = True

    def __init__(self, state, directory):
        super().__init__(state, directory)
        import torch_checkpointing as tc
        from torch_checkpointing.config import AsyncCheckpointSaverConfig
        from torch_checkpointing.staging import CheckpointStagerConfig
        from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig
        staging = CheckpointStagerConfig(use_pinned_memory=False, use_non_blocking_copy=False)
        self._manager = tc.CheckpointManager.Config(
            storage_config=LocalFileSystemStorageConfig(use_direct_io=False),  # its O_DIRECT fails on ext4
            save=AsyncCheckpointSaverConfig(staging_config=staging)).build()

    def save(self, step):
        self._written = self._manager.save(self.path(step), {"model": self.state.tensors})

    def before_step(self):
        with self._manager.lock():
            pass

    def finish(self):
        self._written.result()

    def close(self):
        self._manager.close()


class LmResiliency(Way):
    world = 2  # it wants pairs
    share = 4  # it keeps four times the state
    complete = "replicated to the other rank's memory"
    overlaps = True

    def __init__(self, state, directory):
        super().__init__(state, directory)
        from lm_resiliency.checkpointing import InMemoryCheckpointManager, InMemoryCkptConfig
        self._manager = InMemoryCheckpointManager(InMemoryCkptConfig(
            interval=1, replication_jump=1, disk_flush_interval=0, disk_folder=directory, run_id="bench",
            pin_memory=False))

    def save(self, step):
        self._manager.save_tensors(list(self.state.tensors.values()), step)

    def before_step(self):
        self._manager.maybe_wait()

    def finish(self):
        self._manager.finalize_replication()

    def close(self):
        self._manager.close()


class Tierckpt(Way):
    """Ours: the trainer waits until everything is copied."""

    complete = agent.COMMITTED
    to_storage = False
    stage = "committed"

    def __init__(self, state, directory):
        super().__init__(state, directory)
        import tierckpt
        model = torch.nn.Module()
        model.layers = torch.nn.ParameterList(torch.nn.Parameter(t, requires_grad=False)
                                              for t in state.tensors.values())
        self._checkpoint = tierckpt.init(model=model, overrides={**agent.overrides(directory), "slots": 2,
                                                                 "memory_cap_bytes": "5GiB"})

    def save(self, step):
        self._checkpoint.save_checkpoint(step, to_storage=self.to_storage)
        self._checkpoint.fence()

    def finish(self):
        self._checkpoint.wait(self.stage)

    def close(self):
        self._checkpoint.close()


class TierckptStorage(Tierckpt):
    complete = "published on storage and synced"
    to_storage = True
    stage = "drained"


class TierckptOverlapped(Tierckpt):
    """Ours: the copy goes on while the next forward and backward run."""

    overlaps = True

    def save(self, step):
        self._checkpoint.save_checkpoint(step)

    def before_step(self):
        self._checkpoint.fence()


WAYS = {
    "torch.save": TorchSave,
    "safetensors": Safetensors,
    "dcp.save": DcpSave,
    "dcp.async.thread": DcpAsyncThread,
    "dcp.async.pinned": DcpAsyncPinned,
    "dcp.async.process": DcpAsyncProcess,
    "dcp.async.shared": DcpAsyncShared,
    "torch_checkpointing": TorchCheckpointing,
    "lm-resiliency": LmResiliency,
    "tierckpt": Tierckpt,
    "tierckpt.storage": TierckptStorage,
    "tierckpt.overlapped": TierckptOverlapped,
}


def join(world, rank, directory):
    dist.init_process_group("gloo", init_method=f"file://{directory}/ranks", world_size=world, rank=rank)
