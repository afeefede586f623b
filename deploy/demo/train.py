# SPDX-License-Identifier: Apache-2.0
"""One rank of the training. Started by torchrun, as often as it restarts its ranks; continues from the newest version
in memory."""

import time

STARTED = time.time()

import argparse
import datetime
import hashlib
import math
import os
import random
import sys
import traceback

import torch
import torch.distributed as dist

import events
import model as gpt
import parallel

SEED = 1234
BATCH = 4
CAPACITY = {"optimizer": 2048, "scheduler": 1024, "extra_state": 1024, "rng": 16384}  # the default suits bigger models


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=["ddp_zero", "hsdp"], required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--text", required=True, help="file of the characters to learn")
    parser.add_argument("--events", required=True, help="directory for this rank's report")
    parser.add_argument("--config", help="configuration of the checkpoints; without it there are none")
    return parser.parse_args()


def leave(status):
    """Without the interpreter's tear-down: it takes seconds, and a gloo thread that lets go of its last tensors meanwhile
    needs the interpreter and ends the process by std::terminate(). The launcher would take that for a failure."""
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(status)


def leave_at_once(kind, error, trace):
    """A trainer whose peer is gone makes way for its successor."""
    traceback.print_exception(kind, error, trace)
    leave(1)


def build(mode, world_size, rank):
    """Model, callable, optimizer, scheduler: equal initial weights everywhere, and dropout of this rank's own."""
    torch.manual_seed(SEED)
    model = gpt.GPT()
    call, optimizer = parallel.ddp_zero(model) if mode == "ddp_zero" else parallel.hsdp(model, world_size)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 10) * (0.5 + 0.5 * math.cos(math.pi * step / 200))
    )
    torch.manual_seed(SEED + 1 + rank)
    random.seed(rank)
    return model, call, optimizer, scheduler


def digest(tensors):
    total = hashlib.sha256()
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        total.update(local.detach().contiguous().numpy().tobytes())
    return total.hexdigest()


def final_digests(model, optimizer):
    """SHA-256 of everything that a restored run must have in common with one that was never interrupted."""
    inner = getattr(optimizer, "optim", optimizer)  # ZeRO keeps this rank's share in an optimizer of its own
    parameters = dict(model.named_parameters())
    states = (inner.state[p] for p in parameters.values() if p in inner.state)
    return {
        "parameters": digest(parameters.values()),
        "optimizer": digest(value for state in states for _, value in sorted(state.items())),
        "rng": digest([torch.get_rng_state()]) + hashlib.sha256(repr(random.getstate()).encode()).hexdigest(),
    }


def start_checkpoints(args, report, **trained):
    """The checkpoints and the step to go on from; (None, 0) in a run without them."""
    if args.config is None:
        return None, 0
    import tierckpt

    dist.barrier()  # what is measured next is the checkpoints' time, not the slowest rank's imports
    begin = time.time()
    checkpoints = tierckpt.init(config=args.config, capacity=CAPACITY, **trained)
    report.write("attached", seconds=time.time() - begin)
    begin = time.time()
    step = checkpoints.load_checkpoint()
    if step is None:
        report.write("fresh")
        return checkpoints, 0
    restored = checkpoints.restored
    report.write(
        "restored",
        step=step,
        newest_step=restored.newest_step,
        sources={tier: getattr(restored, f"bytes_{tier}") for tier in ("local", "twin", "peer", "storage")},
        seconds=time.time() - begin,
    )
    return checkpoints, step


def train_step(call, optimizer, scheduler, batches):
    text, target = batches.next()
    loss = call(text, target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    scheduler.step()
    return loss.item()


def counters(checkpoints):
    """Totals of the checkpoints so far; the driver takes differences."""
    if checkpoints is None:
        return {"stall_ns": 0, "bytes_copied": 0}
    stats = checkpoints.stats()
    return {"stall_ns": stats.stall_ns_total, "bytes_copied": stats.bytes_copied}


def train(args, report):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model, call, optimizer, scheduler = build(args.mode, world_size, rank)
    batches = gpt.Batches(args.text, rank, BATCH)
    checkpoints, step = start_checkpoints(
        args, report, model=call, optimizer=optimizer, scheduler=scheduler, extra_state=batches
    )
    while step < args.steps:
        begin = time.perf_counter()
        loss = train_step(call, optimizer, scheduler, batches)
        step += 1
        trained = time.perf_counter()
        saved = checkpoints is not None and bool(checkpoints.save_checkpoint_if_needed(step))
        end = time.perf_counter()
        timing = {"seconds": end - begin, "save_seconds": end - trained, "saved": saved}
        report.write("step", step=step, loss=loss.hex(), **timing, **counters(checkpoints))
    report.write("final", **final_digests(model, optimizer))
    if checkpoints is not None:
        checkpoints.close(job_done=True)


def main():
    args = parse_arguments()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=10))
    sys.excepthook = leave_at_once  # in place of torch's own, which collects the text before it prints it
    report = events.Writer(args.events, os.environ["TIERCKPT_NODE"], dist.get_rank())
    report.write("started", seconds=time.time() - STARTED)
    train(args, report)
    dist.barrier()
    dist.destroy_process_group()
    leave(0)


if __name__ == "__main__":
    main()
