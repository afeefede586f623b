# SPDX-License-Identifier: Apache-2.0
"""A job of deploy/slurm on a Slurm cluster, in place of nodes with launchers: what a Run needs of nodes.Job."""

import json
import os
import pathlib
import shutil
import sys
import time

import nodes
import slurm_cluster

KIT = pathlib.Path(__file__).resolve().parents[1] / "slurm"
POLL_SECONDS = 0.5  # between questions to slurmctld
TRAIN_NODES = 2


class SlurmJob:
    """The job of one training and its cluster, until close(): two nodes train, one is a hot spare, one is not allocated."""

    def __init__(self, _network, directory, trainer_arguments, config):
        self._directory = pathlib.Path(directory).resolve()
        self._arguments = trainer_arguments
        self._config = config
        self._id = None
        self._asked = (0.0, True)
        self.cluster = slurm_cluster.Cluster(self._directory / "cluster")
        self.cluster.__enter__()

    @property
    def nodes(self):
        """The job as a whole counts as the one node that a Run watches."""
        return {} if self._id is None else {"the job": self}

    def submit(self):
        """With the scripts that users get; what they adapt comes from the environment."""
        kit = self._directory / "kit"
        shutil.copytree(KIT, kit)
        config = {**self._config, "net_device": "lo"}
        (kit / "config.json").write_text(json.dumps(config, indent=2))
        trainer = [nodes.HERE / "train.py", *self._arguments, "--config", kit / "config.json"]
        environment = {
            "TRAIN_NODES": str(TRAIN_NODES), "RANKS_PER_NODE": str(nodes.RANKS_PER_NODE), "NET_DEVICE": "lo",
            "TRAIN": " ".join(map(str, trainer)), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
            "PATH": f"{pathlib.Path(sys.executable).parent}:{self.cluster.environment['PATH']}",
            "TIERCKPT_BIN_DIR": os.environ.get("TIERCKPT_BIN_DIR") or _programs(),
        }  # fmt: skip
        output = self._directory / "job.log"
        self._id = self.cluster.command(
            "sbatch", "--parsable", f"--nodes={TRAIN_NODES + 1}", f"--output={output}", "job.sbatch", cwd=kit,
            environment=environment,
        ).strip()  # fmt: skip
        return self._id

    def running(self):
        at, running = self._asked
        if running and time.monotonic() > at + POLL_SECONDS:
            state = self.cluster.command("squeue", "-h", "-t", "all", "-j", self._id, "-o", "%T").strip()
            self._asked = (time.monotonic(), state in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"))
        return self._asked[1]

    def close(self):
        self.cluster.close()
        if self._id is not None:
            shutil.rmtree(f"/tmp/tierckpt-{self._id}", ignore_errors=True)  # job.sbatch's runtime directory


def _programs():
    """The directory of the installed package's programs."""
    from tierckpt.runtime import installation

    return str(installation.PROGRAMS)
