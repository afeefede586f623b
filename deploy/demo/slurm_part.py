# SPDX-License-Identifier: Apache-2.0
"""The part of the demonstration under Slurm: a node of the job is lost, and a hot spare takes its place."""

import time

import parts
import slurm_job

LOST = "n2"  # not n1, where the script of the job runs: Slurm requeues a job that loses that node


def lose_node(run, say):
    """SIGKILL for the slurmd of a node and for all that runs there; nobody tells Slurm or the job."""
    before, survivors = parts.homes(run), parts.trainers_outside(run, [LOST])
    loss = parts.Loss("", time.time(), 0, before)
    killed = run.job.cluster.kill(LOST)
    loss.newest_step = run.newest_step_now()
    loss.text = (
        f"{parts.describe([LOST], before)}: slurmd and all else there, {killed} processes killed, their memory gone"
    )
    say(f"LOSS    {loss.text}")
    loss.detected = run.until_ended(survivors)
    say(f"ended   the other trainers, {loss.detected - loss.at:.2f} s after the loss")
    run.until_final()
    now = sorted({event["node"] for event in run.of("restored", loss.at)})
    loss.notes.append(f"nodes              {' and '.join(sorted(set(before.values())))}, then {' and '.join(now)}")
    return loss


def start(run, say):
    """Submits the job and says what it is."""
    job = run.job.submit()
    say(f"start   job {job}: deploy/slurm/job.sbatch on {slurm_job.TRAIN_NODES} nodes and a hot spare")


PART = parts.Part(
    "slurm", "a node of a Slurm job is killed; DDP with ZeroRedundancyOptimizer", "ddp_zero", lose_node,
    {"on_node_loss": "end_trainers"},
)  # fmt: skip
