# SPDX-License-Identifier: Apache-2.0
"""Correct and incorrect use of tierckpt.deepspeed: each case is a function; all of them run in one job of two ranks."""

import logging
import os
import traceback

import torch
import torch.distributed as dist
from deepspeed.runtime.engine import DeepSpeedEngine

import tierckpt
from ds_training import Training
from tierckpt import deepspeed as adapter


def check_all(rank, world, config):
    """{case: "ok" or what went wrong}."""
    verdicts = {}
    for number, case in enumerate(_CASES):
        try:
            case(rank, {**config, "job": f"case{number}"})
            verdicts[case.__name__] = "ok"
        except Exception:
            verdicts[case.__name__] = traceback.format_exc()
        dist.barrier()
    return verdicts


def raises(kind, text, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"no {kind.__name__}")


def nothing_to_load_at_first(rank, config):
    with adapter.attach(Training(rank, "z2-bf16").engine, config=config) as checkpoint:
        assert checkpoint.query() is None
        assert checkpoint.load_checkpoint() is None
        assert checkpoint.restored is None
        raises(tierckpt.InvalidArgumentError, "step 0", checkpoint.save_checkpoint)
        assert not checkpoint.save_checkpoint_if_needed()


def saves_once_per_step_of_the_optimizer(rank, config):
    job = Training(rank, "z2-bf16")
    engine, started = job.engine, []
    with adapter.attach(engine, config=config) as checkpoint:
        for _ in range(4):  # every second one ends an accumulation
            engine.backward(engine(torch.ones(2, 3, dtype=torch.long)))
            engine.step()
            started.append(bool(checkpoint.save_checkpoint_if_needed()))
            if not started[-1]:
                raises(tierckpt.InvalidArgumentError, "ends the accumulation", checkpoint.save_checkpoint)
            else:
                checkpoint.wait("committed")
        assert not checkpoint.save_checkpoint_if_needed()
        assert checkpoint.query().step == 2
    assert started == [False, True, False, True]


def a_save_does_nothing_collective(rank, config):
    for kind in ("z0-fp32", "z1-bf16", "z2-bf16", "z3-bf16"):
        job, calls = Training(rank, kind), []
        with adapter.attach(job.engine, config={**config, "job": f"{config['job']}{kind}"}) as checkpoint:
            job.step()
            real = {name: getattr(dist, name) for name in dir(dist) if name.startswith(("all_", "reduce", "broadcast",
                                                                                        "barrier", "gather", "send"))}
            for name in real:
                setattr(dist, name, lambda *_, name=name, calls=calls, **__: calls.append(name))
            try:
                assert checkpoint.save_checkpoint_if_needed()
                checkpoint.fence()
            finally:
                for name, function in real.items():
                    setattr(dist, name, function)
            assert calls == [], calls
            checkpoint.wait("committed")


def the_fence_is_right_before_the_step_of_the_optimizer(rank, config):
    for kind in ("z0-fp32", "z3-bf16"):
        job, order = Training(rank, kind), []
        with adapter.attach(job.engine, config={**config, "job": f"{config['job']}{kind}"}) as checkpoint:
            client, step = checkpoint._checkpoint._client, job.engine.optimizer.step
            fence = client.fence
            client.fence = lambda fence=fence, order=order: (order.append("fence"), fence())
            job.engine.optimizer.step = lambda step=step, order=order: (order.append("step"), step())
            job.step()
            assert order == ["fence", "step"], order
            del client.fence
        assert job.step() and order == ["fence", "step", "step"], order


def goes_back_within_one_process(rank, config):
    for kind in ("z1-fp32", "z3-bf16"):
        job = Training(rank, kind)
        with adapter.attach(job.engine, config={**config, "job": f"{config['job']}{kind}"},
                            client_state=job.position) as checkpoint:
            job.step()
            checkpoint.save_checkpoint()
            checkpoint.wait("committed")
            before = job.digest()
            after = [job.step(), job.digest()]
            assert checkpoint.load_checkpoint() == 1
            assert job.digest() == before
            assert [job.step(), job.digest()] == after


def state_that_deepspeed_loads_is_followed(rank, config):
    job = Training(rank, "z2-bf16")
    directory = os.path.join(config["runtime_dir"], "files")
    with adapter.attach(job.engine, config=config, client_state=job.position) as checkpoint:
        job.step()
        job.engine.save_checkpoint(directory)
        job.step()
        job.engine.load_checkpoint(directory)  # replaces the tensors of the moments
        job.step()
        checkpoint.save_checkpoint()
        checkpoint.wait("committed")
        saved = job.digest()
        job.step()
        assert checkpoint.load_checkpoint() == 2
        assert job.digest() == saved


def a_second_attach_is_refused(rank, config):
    engine = Training(rank, "z0-fp32").engine
    with adapter.attach(engine, config=config):
        raises(tierckpt.InvalidArgumentError, "close that one first", adapter.attach, engine, config=config)
    adapter.attach(engine, config=config).close()


def configuration_of_deepspeed_has_ours(rank, config):
    engine = Training(rank, "z0-fp32").engine
    engine._config._param_dict["tierckpt"] = {**config, "save_mem_intervall": 1}
    raises(tierckpt.ConfigError, "save_mem_intervall", adapter.attach, engine)
    engine._config._param_dict["tierckpt"] = config
    adapter.attach(engine).close()


def what_is_no_engine_is_refused(rank, config):
    raises(tierckpt.InvalidArgumentError, "deepspeed.initialize returns first, it got a Linear", adapter.attach,
           torch.nn.Linear(1, 1), config=config)


def unknown_capacity_is_refused(rank, config):
    raises(tierckpt.InvalidArgumentError, "'extra'", adapter.attach, Training(rank, "z0-fp32").engine, config=config,
           capacity={"extra": 1})


def what_is_not_known_is_refused(rank, config):
    engine = Training(rank, "z1-bf16").engine
    engine.has_moe_layers = True
    raises(tierckpt.UnsupportedError, "does not know experts (MoE): use engine.save_checkpoint", adapter.attach, engine,
           config=config)


def ranks_that_differ_are_named(rank, config):
    engine = Training(rank, "z0-fp32").engine
    with torch.no_grad():
        engine.module.head.bias += rank
    raises(tierckpt.InvalidArgumentError, "head.bias", adapter.attach, engine, config=config)


def another_kind_of_engine_does_not_load(rank, config):
    job = Training(rank, "z1-bf16")
    with adapter.attach(job.engine, config=config) as checkpoint:
        job.step()
        checkpoint.save_checkpoint()
        checkpoint.wait("committed")
        checkpoint.close(job_done=False)
    other = Training(rank, "z3-fp32")
    other.step()
    before = other.digest()
    with adapter.attach(other.engine, config=config) as checkpoint:
        raises((tierckpt.LayoutError, tierckpt.UnrecoverableError), "", checkpoint.load_checkpoint)
        assert other.digest() == before


def late_optimizer_state_is_named(rank, config):
    job = Training(rank, "z2-bf16")
    with adapter.attach(job.engine, config=config) as checkpoint:
        job.step()
        flat = job.engine.optimizer.single_partition_of_fp32_groups[0]
        job.engine.optimizer.optimizer.state[flat]["late"] = torch.zeros(2)
        result = checkpoint.save_checkpoint()
        assert result.skipped and "late of the optimizer came into being after attach" in result.reason, result


def an_unknown_deepspeed_turns_it_off(rank, config):
    known, lines = DeepSpeedEngine._take_model_step, []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("tierckpt").addHandler(handler)
    DeepSpeedEngine._take_model_step = lambda self, other_name: known(self, other_name)
    try:
        job = Training(rank, "z2-bf16")
        with adapter.attach(job.engine, config=config) as checkpoint:
            assert checkpoint.load_checkpoint() is None
            job.step()
            assert not checkpoint.save_checkpoint_if_needed()
            checkpoint.save_checkpoint()
            checkpoint.wait("committed")
        assert adapter.attach(job.engine, config=config).query() is None
    finally:
        DeepSpeedEngine._take_model_step = known
        logging.getLogger("tierckpt").removeHandler(handler)
    assert len(lines) == 1 and "_take_model_step has the parameters (self, other_name)" in lines[0], lines
    assert "deepspeed 0." in lines[0]


_CASES = (nothing_to_load_at_first, saves_once_per_step_of_the_optimizer, a_save_does_nothing_collective,
          the_fence_is_right_before_the_step_of_the_optimizer, goes_back_within_one_process,
          state_that_deepspeed_loads_is_followed, a_second_attach_is_refused, configuration_of_deepspeed_has_ours,
          what_is_no_engine_is_refused, unknown_capacity_is_refused, what_is_not_known_is_refused,
          ranks_that_differ_are_named, another_kind_of_engine_does_not_load, late_optimizer_state_is_named,
          an_unknown_deepspeed_turns_it_off)
