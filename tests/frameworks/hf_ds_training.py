# SPDX-License-Identifier: Apache-2.0
"""A small training with Hugging Face's Trainer and DeepSpeed."""

import hashlib
import json
import os
import random
import threading
import time
from pathlib import Path

import numpy
import torch
from transformers import TrainerCallback

import tierckpt.adapters.deepspeed
import tierckpt.deepspeed
from ds_training import digest_of
from hf_training import Death, Heard, Seen, losses, make
from tierckpt.adapters.api_compat import RequiredApi
from tierckpt.transformers import TrainerWrapper


def _ds_config(stage, gather):
    return {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": True},
            "gradient_clipping": "auto", "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 50,
                                  "stage3_gather_16bit_weights_on_model_save": gather}}


def _result(trainer):
    """A digest of everything that the next steps depend on, and the log history."""
    engine = trainer.model_wrapped
    total = hashlib.sha256(digest_of(engine).encode())
    rest = (losses(trainer), trainer.state.global_step, trainer.state.epoch, engine.global_steps, engine.global_samples,
            trainer.lr_scheduler.state_dict(), engine.get_lr(), torch.get_rng_state().numpy().tobytes(),
            random.getstate(), numpy.random.get_state()[1].tobytes())
    total.update(repr(rest).encode())
    best = trainer.state.best_model_checkpoint
    return {"digest": total.hexdigest(), "losses": losses(trainer), "best": best and os.path.basename(best)}


def _alone():
    """Sets the environment that DeepSpeed's launcher sets for a single rank. (Without it, DeepSpeed uses MPI.)"""
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


def _held(trainer):
    """Everything that does not depend on the number of ranks: complete weights, masters and moments, the optimizer's
    counters, the schedule, and the trainer's state. Collective."""
    engine = trainer.model_wrapped
    base = getattr(engine.optimizer, "optimizer", engine.optimizer)
    steps = sorted({float(state["step"]) for state in base.state.values()})
    return {"engine": digest_of(engine), "steps": steps, "schedule": trainer.lr_scheduler.state_dict(),
            "counts": [engine.global_steps, engine.global_samples, engine.skipped_steps, trainer.state.global_step],
            "lr": engine.get_lr(), "losses": losses(trainer)}


class _Note(TrainerCallback):
    """Records the state before the first step; rank 0 writes it to a file before each step."""

    def __init__(self, wrapper, directory):
        self._wrapper, self._directory = wrapper, directory
        self.first = None

    def on_step_begin(self, args, state, control, **kwargs):
        held = _held(self._wrapper)
        self.first = self.first or held
        if self._wrapper.model_wrapped.global_rank == 0:
            Path(self._directory, f"held-{state.global_step}.json").write_text(json.dumps(held))


class _HalfFile(TrainerCallback):
    """This rank writes only half of DeepSpeed's files of a step: as if writing never ended, or failed with an error."""

    def __init__(self, wrapper, at, error):
        self._wrapper, self._at, self._error = wrapper, at, error
        self._stopped = threading.Event()

    def on_train_begin(self, args, state, control, **kwargs):
        inner = self._wrapper.model_wrapped.checkpoint_engine.inner
        save = inner.save

        def half(state_dict, path):
            save(state_dict, path)
            if f"global_step{self._at}/" in path:
                os.truncate(path, os.path.getsize(path) // 2)
                self._stopped.set()
                if self._error:
                    raise OSError(28, "No space left on device")
                time.sleep(1000)

        inner.save = half

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self._at:
            assert self._stopped.wait(60)


def train(rank, world, output_dir, steps, stage, config=None, own_nodes=False, die_at=None, sure=None,
          stage_of_death="committed", half_file_at=None, error=False, resume=None, gather=False, unknown=False,
          notes=None, **arguments):
    """Without config: the plain Trainer. gather: with ZeRO 3, the whole model is also saved. unknown: use an unknown
    DeepSpeed. notes: a directory for the state before each step."""
    if unknown:
        tierckpt.adapters.deepspeed.REQUIRED_API = (RequiredApi("deepspeed:something_else", ()),)
    if world == 1:
        _alone()
    trainer = make(rank, world, output_dir, steps, deepspeed=_ds_config(stage, gather), bf16=True, **arguments)
    if config is None:
        trainer.train(resume_from_checkpoint=resume)
        return _result(trainer)
    wrapper = TrainerWrapper(trainer, config, overrides={"node": f"node{rank}"} if own_nodes else None)
    seen, heard = Seen(wrapper), Heard()
    wrapper.add_callback(seen)
    note = _Note(wrapper, notes)
    if notes is not None:
        wrapper.add_callback(note)
    if die_at is not None:
        wrapper.add_callback(Death(wrapper, die_at, sure or die_at, stage_of_death, rank, world))
    if half_file_at is not None and rank == 1:
        wrapper.add_callback(_HalfFile(wrapper, half_file_at, error))
    wrapper.train(resume_from_checkpoint=True if resume is None else resume)
    return {**_result(trainer), "resumed": seen.resumed, "source": seen.source, "log": heard.lines,
            "held": note.first}
