# SPDX-License-Identifier: Apache-2.0
"""One class per way to save a state. save() returns when the trainer may continue; before_step() when it may change its
tensors again (its time is stall too); finish() when the save has got as far as that way ever says: `complete`; and
make_durable() when it is on storage and synced."""

import os
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import agent


def sync(path):
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def sync_all(path):
    """A file, or a directory with all that is in it."""
    sync(path)
    if os.path.isdir(path):
        for entry in os.scandir(path):
            sync_all(entry.path)


class Way:
    alone = False  # each rank saves in a process group of its own
    complete = "written by all ranks"
    overlaps = False  # something goes on between save and before_step, which the time until then can hide
    durable = True

    def __init__(self, state, directory, ranks):
        self.state, self.directory, self.ranks = state, directory, ranks

    def path(self, step):
        """Of a file of this rank's own."""
        return os.path.join(self.directory, f"step{step}.{self.ranks.rank}")

    def before_step(self):
        pass

    def finish(self, step):
        """By default when all ranks have."""
        self.ranks.meet()

    def make_durable(self, step) -> bool:
        """False if it never is."""
        sync_all(self.path(step))
        sync(self.directory)
        self.ranks.meet()
        return True

    def clean(self, step):
        """Not timed."""
        path = self.path(step)
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.exists(path):
            os.remove(path)

    def close(self):
        pass


class TorchSave(Way):
    def save(self, step):
        torch.save(self.state.tensors, self.path(step))


class Safetensors(Way):
    def __init__(self, state, directory, ranks):
        super().__init__(state, directory, ranks)
        from safetensors.torch import save_file
        self._save_file = save_file

    def save(self, step):
        self._save_file(self.state.tensors, self.path(step))


class Dcp(Way):
    """A directory that all ranks write into."""

    complete = "written and synced by all ranks"

    def path(self, step):
        return os.path.join(self.directory, f"step{step}")

    def tensors(self):
        return {f"rank{self.ranks.rank}.{name}": tensor for name, tensor in self.state.tensors.items()}


class DcpSave(Dcp):
    def save(self, step):
        dcp.save(self.tensors(), checkpoint_id=self.path(step))


class DcpAsyncThread(Dcp):
    """The writing thread needs a group of its own."""

    kind = dcp.state_dict_saver.AsyncCheckpointerType.THREAD
    stager = None

    def __init__(self, state, directory, ranks):
        super().__init__(state, directory, ranks)
        self._group = dist.new_group(backend="gloo")

    def save(self, step):
        self._saving = dcp.async_save(self.tensors(), checkpoint_id=self.path(step), process_group=self._group,
                                      async_checkpointer_type=self.kind, async_stager=self.stager)

    def before_step(self):
        staged = getattr(self._saving, "staging_completion", None)
        if staged is not None:
            staged.result()

    def finish(self, step):
        getattr(self._saving, "upload_completion", self._saving).result()
        self.ranks.meet()


class DcpAsyncProcess(DcpAsyncThread):
    kind = dcp.state_dict_saver.AsyncCheckpointerType.PROCESS


class DcpAsyncShared(DcpAsyncProcess):
    """Staging memory that is kept and shared with the writing process, as torchtitan's async_with_pinned_mem has it. It
    is not pinned here, since that needs a GPU."""

    def __init__(self, state, directory, ranks):
        super().__init__(state, directory, ranks)
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
        self.stager = DefaultStager(StagingOptions(use_pinned_memory=False, use_shared_memory=True,
                                                   use_async_staging=False, use_non_blocking_copy=False))

    def close(self):
        self.stager.close()


class DcpAsyncPinned(DcpAsyncThread):
    """Of tensors on a GPU: staged in pinned memory that is kept, in the background."""

    overlaps = True

    def __init__(self, state, directory, ranks):
        super().__init__(state, directory, ranks)
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
        self.stager = DefaultStager(StagingOptions(use_pinned_memory=True, use_shared_memory=False,
                                                   use_async_staging=True, use_non_blocking_copy=True))

    def close(self):
        self.stager.close()


class TorchCheckpointing(Way):
    alone = True  # between ranks it gathers metadata on CUDA devices only
    complete = "written"
    overlaps = True

    def __init__(self, state, directory, ranks):
        super().__init__(state, directory, ranks)
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

    def finish(self, step):
        self._written.result()
        self.ranks.meet()

    def close(self):
        self._manager.close()


class LmResiliency(Way):
    """Durable in its directory for restarts, which each node has: the own shard of each rank."""

    complete = "replicated to the other rank's memory"

    def __init__(self, state, directory, ranks):
        super().__init__(state, directory, ranks)
        from lm_resiliency.checkpointing import InMemoryCheckpointManager, InMemoryCkptConfig
        self._manager = InMemoryCheckpointManager(InMemoryCkptConfig(
            interval=1, replication_jump=1, disk_flush_interval=0, disk_folder=directory, run_id="bench",
            pin_memory=False))

    def save(self, step):
        self._manager.save_tensors(list(self.state.tensors.values()), step)

    def before_step(self):
        self._manager.maybe_wait()

    def finish(self, step):
        if not self._manager.finalize_replication():
            raise RuntimeError(f"step {step} was not replicated")
        self.ranks.meet()

    def make_durable(self, step):
        self._manager.flush_to_disk(step)
        self._manager._disk.wait()
        self.ranks.meet()  # the directory is that of all ranks, and their temporary files are gone then
        sync_all(self._manager._disk._folder / f"step-{step}")
        self.ranks.meet()
        return True

    def clean(self, step):
        self._manager._disk.cleanup_older_than(step + 1)

    def close(self):
        self._manager.close()


class Tierckpt(Way):
    """Ours: the trainer waits until everything is copied. Each rank is a node, and protects the other one."""

    durable = False
    to_storage = False

    def __init__(self, state, directory, ranks):
        super().__init__(state, directory, ranks)
        import tierckpt
        model = torch.nn.Module()
        model.layers = torch.nn.ParameterList(torch.nn.Parameter(t, requires_grad=False)
                                              for t in state.tensors.values())
        self.complete = agent.COMMITTED if ranks.world == 1 else "copied to the other node and committed"
        self._checkpoint = tierckpt.init(model=model, replicate_group=tierckpt.PRIVATE,
                                         overrides=agent.overrides(directory, ranks.rank, ranks.world))
        self._checkpoint.load_checkpoint()  # as every training does first

    def save(self, step):
        self._checkpoint.save_checkpoint(step, to_storage=self.to_storage)
        self._checkpoint.fence()

    def finish(self, step):
        self._checkpoint.wait("committed")

    def make_durable(self, step):
        if self.to_storage:
            self._checkpoint.wait("drained")
        return self.to_storage

    def clean(self, step):
        pass  # max_ckpt_num does

    def close(self):
        self._checkpoint.close()


class TierckptStorage(Tierckpt):
    durable = True
    to_storage = True


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
