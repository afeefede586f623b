# SPDX-License-Identifier: Apache-2.0
"""How a start of a training has begun. It is kept with everything that the start saves, so that a later start can tell
what belongs to the history that it continues from what an earlier start has left behind by going back (--ckpt-step)."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypedDict


class Start(TypedDict):
    asked: int | None
    """--ckpt-step."""
    found: list[int] | None
    """Megatron's newest checkpoint at that time: tracker.found_in."""
    launches: list[str]
    """What may start this process again with the same arguments: this torchrun, or this job of Slurm."""


def launches(environment: Mapping[str, str]) -> list[str]:
    found = []
    if "TORCHELASTIC_RUN_ID" in environment:
        found.append(f"torchrun {_parent()}")
    if "SLURM_JOB_ID" in environment:
        found.append(f"slurm {environment.get('SLURM_CLUSTER_NAME', '')} {environment['SLURM_JOB_ID']}")
    return found


def _parent() -> str:
    """The process that has started this one: its number may be given again, but not with the same time of start."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    return f"{boot} {os.getppid()} {stat.rpartition(')')[2].split()[19]}"


def may_be_restarted_by(environment: Mapping[str, str]) -> list[str]:
    """Of launches(), those that may have started this process before. A job of Slurm may have several steps, each of
    them started by hand: only a requeued job counts."""
    requeued = environment.get("SLURM_RESTART_COUNT", "") not in ("", "0")
    return [launch for launch in launches(environment) if requeued or not launch.startswith("slurm ")]


def goes_on(asked: int, loaded: int, saved: Start | None, launched_by: Iterable[str]) -> bool:
    """Whether what was loaded is the iteration that is asked for, or was saved by the same launch after it had gone
    back to that.

    saved: the start that has saved it; None: not known. launched_by: may_be_restarted_by of all ranks."""
    if saved is None or loaded <= asked:
        return loaded == asked
    return saved["asked"] == asked and not set(launched_by).isdisjoint(saved["launches"])


def left_behind(found: list[int] | None, saved: Start | None) -> bool:
    """Whether Megatron's newest checkpoint was there already when the start began that has saved what was loaded: that
    start had gone back to an earlier iteration."""
    return saved is not None and found is not None and saved["found"] == found
