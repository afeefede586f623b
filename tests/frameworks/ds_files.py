# SPDX-License-Identifier: Apache-2.0
"""Ranks that save and load through DeepSpeed's own calls."""

import importlib.util
import os
import threading

import torch
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

import moved
import tierckpt.deepspeed
from ds_training import Training, digest_of, held_by
from observers import Heard, draws_as_its_own


class _Gate:
    """Delays the writing of an engine's files until it is opened."""

    def __init__(self, engine):
        self._inner = engine.checkpoint_engine.inner
        self._save = self._inner.save
        self._opened = threading.Event()
        self._inner.save = self._late

    def _late(self, state_dict, path):
        assert self._opened.wait(60)
        self._save(state_dict, path)

    def open(self):
        self._opened.set()
        self._inner.save = self._save


def _saved_in(directory):
    """The files in the directory, except the scripts that DeepSpeed adds."""
    return sorted(name for name in os.listdir(directory) if not name.endswith(".py"))


def save_aside(rank, world, kind, config, directory):
    """Returns [the files while writing is delayed and training continues, the files afterwards, digest of the saved
    state]."""
    job = Training(rank, kind)
    with tierckpt.deepspeed.attach(job.engine, config=config) as checkpoint:
        job.step()
        saved = digest_of(job.engine)
        gate = _Gate(job.engine)
        job.engine.save_checkpoint(directory, client_state={"position": 7})
        job.step()
        checkpoint.save_checkpoint_if_needed()
        torch.distributed.barrier()
        meanwhile = _saved_in(directory)
        torch.distributed.barrier()
        gate.open()
        job.engine.checkpoint_engine.wait()
        after = _saved_in(directory)
    assert type(job.engine.checkpoint_engine).__name__ == "TorchCheckpointEngine"
    return [meanwhile, after, saved]


def load_stock(rank, world, kind, directory):
    engine = Training(rank, kind, seed=1).engine
    path, client_state = engine.load_checkpoint(directory)
    assert path is not None and client_state["position"] == 7 and engine.global_steps == 1
    return digest_of(engine)


def fail_on_one_rank(rank, world, kind, config, directory):
    """Rank 1 cannot write the second of three checkpoints. Returns the values of `latest` after it and at the end."""
    job = Training(rank, kind)
    latest = []
    with tierckpt.deepspeed.attach(job.engine, config=config):
        ours = job.engine.checkpoint_engine
        whole = ours.inner.save
        for number in range(1, 4):
            job.step()
            if rank == 1:
                ours.inner.save = _no_space if number == 2 else whole
            job.engine.save_checkpoint(directory)
            ours.wait()
            with open(os.path.join(directory, "latest"), encoding="ascii") as file:
                latest.append(file.read())
    assert latest[0] == latest[1]
    return latest[1:]


def _no_space(state_dict, path):
    raise OSError(28, "No space left on device")


def save_to_storage(rank, world, kind, config):
    """Returns the saved state."""
    job = Training(rank, kind)
    with tierckpt.deepspeed.attach(job.engine, config=config, client_state=job.position) as checkpoint:
        for _ in range(3):
            job.step()
        checkpoint.save_checkpoint(to_storage=True)
        checkpoint.wait("drained")
    return [digest_of(job.engine), job.engine.get_lr(), job.position["samples"]]


def load_and_go_on(rank, world, kind, config):
    """Returns [the loaded state, losses after the load, the last checkpoint that a second load finds]."""
    job = Training(rank, kind, seed=1)
    with tierckpt.deepspeed.attach(job.engine, config=config, client_state=job.position) as checkpoint:
        assert checkpoint.load_checkpoint() == job.engine.global_steps == 3
        assert checkpoint.restored is not None, "the library has read it"
        loaded = [digest_of(job.engine), job.engine.get_lr(), job.position["samples"]]
        losses = job.step()
        assert checkpoint.save_checkpoint_if_needed()
        checkpoint.wait("committed")
        return [loaded, losses, checkpoint.load_checkpoint()]


def load_onto_device(rank, world, kind, config, **how):
    """Loads onto a stand-in for a device and takes a step. Returns [the loaded state, whether the generator is the one
    of this rank, how it was read]."""
    job = Training(rank, kind, seed=1)
    with tierckpt.deepspeed.attach(job.engine, config=config, client_state=job.position) as checkpoint:
        seen = moved.WhileRead(lambda: held_by(job.engine), **how)
        assert checkpoint.load_checkpoint() == job.engine.global_steps == 3
        assert checkpoint.restored is None, "the adapter has read it"
        own = draws_as_its_own(rank, config)
        loaded = [digest_of(job.engine), job.engine.get_lr(), job.position["samples"]]
        job.step()
        return [loaded, own, seen.report()]


def publish(rank, world, kind, config, reference):
    """Trains a little, publishes, and writes masters and moments to `reference`, as DeepSpeed returns them."""
    job = Training(rank, kind)
    with tierckpt.deepspeed.attach(job.engine, config=config) as checkpoint:
        job.step()
        job.step()
        checkpoint.save_checkpoint(to_storage=True)
        checkpoint.wait("drained")
    state = {}
    for name, parameter in job.engine.module.named_parameters():
        if parameter.requires_grad:
            state[f"master.{name}"] = safe_get_full_fp32_param(parameter)
            state[f"optimizer.{name}.exp_avg"] = safe_get_full_optimizer_state(parameter, "exp_avg")
    if rank == 0:
        torch.save(state, reference)


def save_stock(rank, world, kind, directory, steps):
    """What DeepSpeed saves by itself, after so many steps."""
    job = Training(rank, kind)
    for _ in range(steps):
        job.step()
    job.engine.save_checkpoint(directory, client_state=job.position)


def go_on_stock(rank, world, kind, directory):
    """Returns [step, samples of the first rank, the loaded state, losses of the next step]. Its generators start
    afresh."""
    job = Training(rank, kind, seed=1)
    path, client_state = job.engine.load_checkpoint(directory)
    assert path is not None
    return [job.engine.global_steps, client_state["samples"], digest_of(job.engine), job.step()]


def own_format(rank, world, kind, config, steps, fail_at=None, last=False):
    """Trains with storage_format framework. Rank 1 cannot write the files of one step. Returns the step that was
    loaded, the error of save_last, and the log."""
    job, heard, error = Training(rank, kind), Heard(), None
    with tierckpt.deepspeed.attach(job.engine, config=config, client_state=job.position) as checkpoint:
        loaded = checkpoint.load_checkpoint()
        inner = job.engine.checkpoint_engine.inner
        whole = inner.save
        for step in range((loaded or 0) + 1, steps + 1):
            job.step()
            job.engine.checkpoint_engine.wait()
            inner.save = _no_space if rank == 1 and step == fail_at else whole
            checkpoint.save_checkpoint_if_needed()
        if last:
            try:
                checkpoint.save_last()
            except tierckpt.Error as failure:
                error = str(failure)
    return [loaded, error, heard.lines]


def run_example(rank, world, path, arguments):
    """Runs the example as its launcher would."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    spec = importlib.util.spec_from_file_location("example", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example.main(arguments)
