# SPDX-License-Identifier: Apache-2.0
"""A job on nodes: the rendezvous store outside, and on every node a launcher (torchrun), trainers and agents."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import processes

HERE = pathlib.Path(__file__).resolve().parent
RANKS_PER_NODE = 2

# torchrun's own settings that a replaced node needs. A lost node leaves the rendezvous after interval * attempts
# seconds; the shared store of the first round must not be reused in the next (torch keeps its old address).
RENDEZVOUS = (
    "is_host=0,keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=120,last_call_timeout=1,"
    "close_timeout=5,read_timeout=15"
)


class Node:
    """One node: its processes, all below one, and its directory, which is lost with it."""

    def __init__(self, process, directory):
        self.process = process
        self.directory = directory

    def kill(self):
        """kill -9 of every process; what the node kept in memory or its own directory is gone. Returns the number."""
        count = processes.kill_tree(self.process)
        shutil.rmtree(self.directory, ignore_errors=True)
        return count

    def freeze(self):
        processes.send(processes.below(self.process.pid), signal.SIGSTOP)

    def thaw(self):
        processes.send(processes.below(self.process.pid), signal.SIGCONT)

    def running(self):
        return self.process.poll() is None

    def agent_log(self):
        """Text of the log of this node's agent, empty if there is none yet."""
        return "\n".join(path.read_text(errors="replace") for path in self.directory.rglob("agent.log"))


class Job:
    """The processes of one training and their network, until close()."""

    def __init__(self, network, directory, trainer_arguments, config=None):
        self._network = network
        self._directory = pathlib.Path(directory)
        self._trainer_arguments = trainer_arguments
        self._config = config
        self.nodes = {}
        self._store = subprocess.Popen(
            network.inside_hub([sys.executable, str(HERE / "store.py"), network.hub_address]),
            env=dict(os.environ, TORCH_CPP_LOG_LEVEL="ERROR"), stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            self._endpoint = f"{network.hub_address}:{self._store.stdout.readline().strip()}"
        except BaseException:  # interrupted
            self.close()
            raise

    def add_node(self, name):
        """Starts a node under a name that this run has not used before."""
        address = self._network.add(name)
        directory = self._directory / name
        directory.mkdir(parents=True)
        trainer = self._trainer(name, address, directory)
        command = [sys.executable, str(HERE / "node_init.py"), *self._launcher(address), *trainer]
        with open(self._directory / f"{name}.log", "wb") as output:
            process = subprocess.Popen(
                self._network.inside(name, command), env=self._environment(name), stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.nodes[name] = Node(process, directory)

    def _launcher(self, address):
        return [
            sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--nproc-per-node={RANKS_PER_NODE}",
            "--rdzv-backend=c10d", f"--rdzv-endpoint={self._endpoint}", "--rdzv-id=demo", f"--rdzv-conf={RENDEZVOUS}",
            "--max-restarts=100", f"--local-addr={address}",
        ]  # fmt: skip

    def _trainer(self, name, address, directory):
        trainer = [str(HERE / "train.py"), *self._trainer_arguments]
        if self._config is None:
            return trainer
        config = {
            **self._config, "node": name, "domain": name, "runtime_dir": str(directory / "run"),
            "net_device": self._network.device, "net_address": address,
        }  # fmt: skip
        path = directory / "config.json"
        path.write_text(json.dumps(config, indent=2))
        return [*trainer, "--config", str(path)]

    def _environment(self, name):
        return dict(
            os.environ, TIERCKPT_NODE=name, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1",
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1", GLOO_SOCKET_IFNAME=self._network.device,
        )  # fmt: skip

    def isolate(self, name):
        """How to make a node unreachable: (do it, undo it, what it is in words)."""
        if self._network.can_cut:
            return lambda: self._network.cut(name), lambda: self._network.heal(name), "its link is cut"
        node = self.nodes[name]
        return node.freeze, node.thaw, "its processes are stopped (no rights to cut a link)"

    def close(self):
        """Ends whatever still runs, and takes the network down."""
        for node in self.nodes.values():
            processes.kill_tree(node.process)
        processes.kill_tree(self._store)
        self._store.stdout.close()
        self._network.close()
