# SPDX-License-Identifier: Apache-2.0
"""A Slurm cluster on this machine: munged, slurmctld, and several slurmd, each of which is a node of its own.

Everything is in one directory: configuration, key, sockets, spools and logs. The ports are free ones of the loopback
device, the numbers of jobs begin somewhere (jobs have directories in /tmp), and the programs come from build/slurm or the
PATH, so a Slurm that runs on this machine is neither used nor disturbed.

    python3 slurm_cluster.py --missing
    python3 slurm_cluster.py DIR [--nodes N] [--option LINE]...

The first names the programs that are not there, if any. The second runs a cluster until its standard input ends, or has
the line "end". It writes DIR/env, which a shell sources for srun and the like, prints "ready", and obeys the lines "kill
NODE" (SIGKILL for slurmd and for all that it has started) and "start NODE".
"""

import argparse
import contextlib
import getpass
import os
import pathlib
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

import processes

HERE = pathlib.Path(__file__).resolve().parent
UNPACKED = HERE.parents[1] / "build" / "slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmstepd", "srun", "sbatch", "scontrol")
PACKAGES = "slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins, munge"
START_SECONDS = 60

CONFIGURATION = """\
ClusterName=tierckpt
FirstJobId={first_job}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/%n/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/%n.slurmd.log
PluginDir={plugins}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MinJobAge=300
{options}
"""


class ClusterError(Exception):
    """The cluster is missing or does not start; the text says what and why."""


def program(name):
    """Its path: Debian's, unpacked, where some names have an ending, or an installed one."""
    for folder in ("usr/bin", "usr/sbin"):
        for ending in ("", "-wlm"):
            path = UNPACKED / folder / (name + ending)
            if path.exists():
                return str(path)
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def missing():
    """Names of the programs that are not there."""
    return [name for name in PROGRAMS if program(name) is None]


def _plugins():
    root = UNPACKED if UNPACKED.exists() else pathlib.Path("/")
    found = list(root.glob("usr/lib/*/slurm-wlm/auth_munge.so"))
    if not found:
        raise ClusterError("the plugins of Slurm (Debian: slurm-wlm-basic-plugins) are not there")
    return found[0].parent


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Cluster:
    """Context manager. Its environment is what the commands of Slurm need to find it."""

    def __init__(self, directory, count=4, options=()):
        self.directory = pathlib.Path(directory).resolve()
        self.names = [f"n{number}" for number in range(1, count + 1)]
        self._options = list(options)
        self._daemons = {}  # name -> process, of which each is above all that it starts
        lacking = missing()
        if lacking:
            raise ClusterError(f"not installed: {', '.join(lacking)} (Debian: {PACKAGES})")
        plugins = _plugins()
        self.environment = {"SLURM_CONF": str(self.directory / "slurm.conf")}
        if plugins.is_relative_to(UNPACKED):
            self.environment["LD_LIBRARY_PATH"] = f"{plugins}:{plugins.parent}"
        self.environment["PATH"] = f"{pathlib.Path(program('srun')).parent}:{os.environ['PATH']}"
        self._write_files(plugins)

    def _write_files(self, plugins):
        ports = _free_ports(1 + len(self.names))
        host = socket.gethostname().partition(".")[0]
        for name in ("state", *self.names):
            (self.directory / name).mkdir(parents=True)
        lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=16"
            for name, port in zip(self.names, ports[1:])
        ]
        lines.append(f"PartitionName=all Nodes={','.join(self.names)} Default=YES MaxTime=INFINITE State=UP")
        text = CONFIGURATION.format(
            host=host, first_job=1000 + secrets.randbelow(10**7), port=ports[0], directory=self.directory, plugins=plugins, user=getpass.getuser(),
            options="\n".join(self._options + lines),
        )  # fmt: skip
        (self.directory / "slurm.conf").write_text(text)
        key = self.directory / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        exports = (f"export {name}={shlex.quote(value)}\n" for name, value in self.environment.items())
        (self.directory / "env").write_text("".join(exports))

    def __enter__(self):
        try:
            self._start_munged()
            self._start("slurmctld", [program("slurmctld"), "-D"])
            for name in self.names:
                self.start(name)
            self._wait("the nodes to be idle", self._all_idle)
        except BaseException:  # interrupted, too
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def command(self, name, *arguments, cwd=None, environment=None):
        """Runs one of Slurm's commands; returns its output."""
        done = subprocess.run(
            [program(name), *arguments], env={**os.environ, **self.environment, **(environment or {})}, cwd=cwd,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise ClusterError(f"{name} {' '.join(arguments)}: {done.stdout.strip()}")
        return done.stdout

    def start(self, name):
        """Starts a node; after kill() this is its return."""
        self._start(name, [program("slurmd"), "-D", "-N", name, "-d", program("slurmstepd")])

    def kill(self, name):
        """SIGKILL for the node's slurmd and for all processes that descend from it. Returns their number."""
        return processes.kill_tree(self._daemons.pop(name))

    def close(self):
        for name in reversed(list(self._daemons)):
            processes.kill_tree(self._daemons.pop(name))

    def _start_munged(self):
        file = self.directory / "munge"
        # --force: the directory need not be open to other users.
        self._start("munged", [
            program("munged"), "--foreground", "--force", "--num-threads=2", f"--socket={file}.socket",
            f"--key-file={file}.key", f"--log-file={file}.log", f"--pid-file={file}.pid", f"--seed-file={file}.seed",
        ])  # fmt: skip
        self._wait("munged", pathlib.Path(f"{file}.socket").exists)

    def _start(self, name, command):
        """Below node_init.py, so that what detaches from the daemon (a slurmstepd does) remains below it."""
        with open(self.directory / f"{name}.out", "ab") as output:
            self._daemons[name] = subprocess.Popen(
                [sys.executable, str(HERE / "node_init.py"), *command], env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _all_idle(self):
        try:
            states = self.command("sinfo", "-h", "-N", "-o", "%N %T").split()[1::2]
        except ClusterError:  # slurmctld does not answer yet
            return False
        return len(states) == len(self.names) and set(states) == {"idle"}

    def _wait(self, what, done):
        deadline = time.monotonic() + START_SECONDS
        while not done():
            ended = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                why = f"{' and '.join(ended)} ended" if ended else f"waited {START_SECONDS} s"
                raise ClusterError(f"waiting for {what}: {why}; logs are in {self.directory}")
            time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--option", action="append", default=[], help="a line of slurm.conf")
    args = parser.parse_args()
    if args.missing:
        print(*missing(), end="")
        return
    if args.directory is None:
        parser.error("a directory is needed")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the daemons are ended
    try:
        with Cluster(args.directory, args.nodes, args.option) as cluster:
            print("ready", flush=True)
            for line in sys.stdin:
                if line.strip() == "end":
                    break
                verb, name = line.split()
                {"kill": cluster.kill, "start": cluster.start}[verb](name)
                print(verb, name, flush=True)
    except ClusterError as error:
        sys.exit(f"Slurm: {error}")


if __name__ == "__main__":
    main()
