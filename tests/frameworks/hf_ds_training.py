# SPDX-License-Identifier: Apache-2.0
"""A small training with Hugging Face's Trainer and DeepSpeed."""

import hashlib
import random

import numpy
import torch
from ds_training import digest_of
from hf_training import Death, Heard, Seen, losses, make

from tierckpt.transformers import TrainerWrapper


def _ds_config(stage):
    return {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": True},
            "gradient_clipping": "auto", "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 50}}


def _result(trainer):
    """Of everything that the next steps depend on, and of what was logged."""
    engine = trainer.model_wrapped
    total = hashlib.sha256(digest_of(engine).encode())
    rest = (losses(trainer), trainer.state.global_step, trainer.state.epoch, engine.global_steps, engine.global_samples,
            trainer.lr_scheduler.state_dict(), engine.get_lr(), torch.get_rng_state().numpy().tobytes(),
            random.getstate(), numpy.random.get_state()[1].tobytes())
    total.update(repr(rest).encode())
    return {"digest": total.hexdigest(), "losses": losses(trainer)}


def train(rank, world, output_dir, steps, stage, config=None, own_nodes=False, die_at=None, sure=None,
          stage_of_death="committed", **arguments):
    """Without config: the plain Trainer."""
    trainer = make(rank, world, output_dir, steps, deepspeed=_ds_config(stage), bf16=True, **arguments)
    if config is None:
        trainer.train()
        return _result(trainer)
    wrapper = TrainerWrapper(trainer, config, overrides={"node": f"node{rank}"} if own_nodes else None)
    seen, heard = Seen(wrapper), Heard()
    wrapper.add_callback(seen)
    if die_at is not None:
        wrapper.add_callback(Death(wrapper, die_at, sure or die_at, stage_of_death, rank, world))
    wrapper.train(resume_from_checkpoint=True)
    return {**_result(trainer), "resumed": seen.resumed, "source": seen.source, "log": heard.lines}
