# SPDX-License-Identifier: Apache-2.0
"""Nodes on this machine: each a network namespace of its own on a common switch where that can be had, else only a name
and a runtime directory. What runs on them, and the save directory, on a file system of its own where that can be had."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

JOB = "soak"
SAVE_DIR_BYTES = 256 << 20
PROGRAMS = ("runtime/agent/tierckptd", "runtime/agent/tierckpt-supervisor", "runtime/cli/tierckpt",
            "tests/cluster/cluster_trainer")  # below the build directory


def run(*command):
    """Whether it succeeded."""
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def kill(pids):
    for pid in pids:
        send(pid, signal.SIGKILL)


class Node:
    def __init__(self, name, number):
        self.name = name
        self.address = f"10.77.{number // 200}.{number % 200 + 1}"


class Cluster:
    def __init__(self, build, work, settings):
        self.build, self.work, self.settings = Path(build), Path(work), settings
        self.missing = {}  # mechanism -> why it cannot be had
        self._cables = {}  # node name -> process
        self.nodes = []  # by position
        self._spaces = []
        self._prefix = f"tck{os.getpid()}-"
        self._numbers = 0
        self._trainer = self.work / "bin/cluster_trainer"
        for name in ("save", "run", "bin"):
            (self.work / name).mkdir()
        programs = self.work / "bin"  # copies: what is built meanwhile does not matter
        for program in PROGRAMS:
            shutil.copy2(self.build / program, programs)
        for library in (self.build / "runtime").rglob("libtierckpt.so*"):
            shutil.copy2(library, programs, follow_symlinks=False)
        self.environment = {**os.environ, "TIERCKPT_BIN_DIR": str(programs), "LD_LIBRARY_PATH": str(programs),
                            "UCX_MEM_EVENTS": "n", **self._sanitizers()}
        self.save_dir = self.work / "save"
        if shutil.which("strace") is None:
            self.missing["strace"] = "no strace here"
        try:
            self._probe_network()
            self._mount_save_dir()
            for _ in range(settings["nodes"]):
                self.nodes.append(self.new_node())
        except BaseException:
            self.close()
            raise

    def _sanitizers(self):
        """Where a sanitized build reports to; see tests/cluster/lib.sh."""
        reports, lists = self.work / "sanitizer", Path(__file__).resolve().parent.parent / "lib"
        return {
            "ASAN_OPTIONS": f"log_path={reports}:quarantine_size_mb=16",  # or what it keeps would be taken for growth
            "UBSAN_OPTIONS": f"log_path={reports}:print_stacktrace=1",
            "LSAN_OPTIONS": f"suppressions={lists}/lsan.supp:print_suppressions=0",
            "TSAN_OPTIONS": f"log_path={reports}:suppressions={lists}/tsan.supp:print_suppressions=0",
        }

    # ---- set-up ---------------------------------------------------------------------------------------------------

    def _probe_network(self):
        if os.geteuid() != 0:
            self._no_network("needs root")
            return
        switch = self._prefix + "switch"
        if not run("ip", "netns", "add", switch):
            self._no_network("no network namespaces here")
            return
        self._spaces.append(switch)
        in_switch = ("ip", "netns", "exec", switch)
        if not (run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge") and
                run("ip", "-n", switch, "link", "set", "bridge", "up")):
            self._no_network("no bridges here")
            return
        if not run(*in_switch, "iptables", "-L", "INPUT"):
            self.missing["iptables"] = "iptables does not work here"
        if not run("tc", "-n", switch, "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "8mbit", "burst", "64kb",
                   "latency", "500ms"):
            self.missing["tbf"] = "no tbf here"
        if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
            self.missing["tun"] = "no /dev/net/tun here"

    def _no_network(self, why):
        self.missing.update(dict.fromkeys(("network", "iptables", "tbf", "tun"), why))

    def _mount_save_dir(self):
        image = self.work / "disk"
        with open(image, "wb") as file:
            file.truncate(SAVE_DIR_BYTES)
        if os.geteuid() != 0 or not run("mkfs.ext4", "-q", "-O", "^has_journal", image) or \
                not run("mount", "-o", "loop", image, self.save_dir):
            self.missing["disk"] = self.missing["freeze"] = "no file system can be mounted here"
            return
        if not (run("fsfreeze", "-f", self.save_dir) and run("fsfreeze", "-u", self.save_dir)):
            self.missing["freeze"] = "fsfreeze does not work here"

    def new_node(self):
        self._numbers += 1
        node = Node(f"n{self._numbers}", self._numbers)
        if "network" not in self.missing:
            self._plug(node)
        return node

    def _plug(self, node):
        space, switch = self._prefix + node.name, self._prefix + "switch"
        self._spaces.append(space)
        made = (run("ip", "netns", "add", space) and self._lay_cable(node, space, switch) and
                run("ip", "-n", switch, "link", "set", f"to-{node.name}", "master", "bridge", "up") and
                run("ip", "-n", space, "link", "set", "lo", "up") and
                run("ip", "-n", space, "address", "add", f"{node.address}/16", "dev", "net0") and
                run("ip", "-n", space, "link", "set", "net0", "up"))
        if not made:
            raise RuntimeError(f"node {node.name} gets no network")

    def _lay_cable(self, node, space, switch):
        if "tun" in self.missing:
            return run("ip", "-n", switch, "link", "add", f"to-{node.name}", "type", "veth", "peer", "name", "net0",
                       "netns", space)
        cable = subprocess.Popen((self.build / "tests/soak/soak_cable", space, "net0", switch, f"to-{node.name}"),
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._cables[node.name] = cable
        return cable.stdout.readline() == b"ready\n"

    def config(self, node):
        s = self.settings
        config = {
            "job": JOB, "node": node.name, "runtime_dir": str(self.work / "run"), "save_dir": str(self.save_dir),
            "linger_s": 60, "memory_cap_bytes": "1GiB", "heartbeat_ms": 200, "peer_timeout_ms": 1500,
            "restore_wait_ms": 1000, "version_timeout_ms": 10000, "max_restore_tries": 1000, "log_level": 3,
            "on_node_loss": s["on_node_loss"],
            "save_mem_interval": s["save_mem_interval"], "save_storage_interval": s["save_storage_interval"],
            "slots": s["slots"], "copies": s["copies"], "max_ckpt_num": s["max_ckpt_num"],
        }
        if "network" not in self.missing:
            config["net_device"] = "net0"
        return config

    def close(self):
        run("fsfreeze", "-u", self.save_dir)
        deadline = time.monotonic() + 20
        while (left := [pid for _, _, pid in self.processes()]) and time.monotonic() < deadline:
            kill(left)
            time.sleep(0.05)
        if "disk" not in self.missing:
            run("umount", "-l", self.save_dir)
        for cable in self._cables.values():
            cable.stdin.close()
            cable.wait()
        for space in self._spaces:
            run("ip", "netns", "delete", space)

    # ---- processes ------------------------------------------------------------------------------------------------

    def processes(self, forked=True):
        """(kind, node name, pid) of all that runs in this campaign's directory; a trainer's node is ''. Without forked:
        not those that another one has made and that are not yet the program that they will be."""
        mark, found, parents = os.fsencode(self.work) + b"/", [], {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                line = Path("/proc", entry, "cmdline").read_bytes()
                if mark not in line:
                    continue
                kind = Path("/proc", entry, "comm").read_text(encoding="utf-8").strip()
                state, parent = Path("/proc", entry, "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[:2]
                if state == "Z":
                    continue
            except (FileNotFoundError, ProcessLookupError):
                continue
            home = line.split(os.fsencode(self.work / "run" / JOB) + b"/", 1)
            node = os.fsdecode(home[1].split(b"\0")[0].split(b"/")[0]) if len(home) == 2 else ""
            found.append(({"tierckptd": "agent", "tierckpt-superv": "supervisor"}.get(kind, "trainer"), node, int(entry)))
            parents[int(entry)] = int(parent)
        kinds = {pid: (kind, node) for kind, node, pid in found}
        return [one for one in found if forked or kinds.get(parents[one[2]]) != one[:2]]

    def pid(self, kind, node):
        pids = [pid for k, name, pid in self.processes(forked=False) if k == kind and name == node.name]
        return pids[0] if pids else None

    def start_trainer(self, node, rank, launch, arguments):
        meeting = self.work / f"oob.{launch}"
        meeting.mkdir(exist_ok=True)
        s = self.settings
        enter = () if "network" in self.missing else ("ip", "netns", "exec", self._prefix + node.name)
        with open(self.work / f"out.{launch}.{rank}", "wb") as out:
            return subprocess.Popen(
                (*enter, self._trainer, "--json", json.dumps(self.config(node)), "--oob", meeting, "--rank", str(rank),
                 "--world", str(s["world"]), "--twins", str(s["twins"]), "--count", str(s["elements"]),
                 "--step-ms", str(s["step_ms"]), "--launch", str(launch), "--lockstep",
                 "--journal", str(self.work / "history"), *arguments),
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=self.environment)

    def ask(self, node, *command):
        """What `tierckpt` says on a node."""
        path = self.work / f"{node.name}.json"
        path.write_text(json.dumps(self.config(node)), encoding="utf-8")
        try:
            done = subprocess.run((self.work / "bin/tierckpt", "--config", path, *command), capture_output=True,
                                  timeout=20, check=False)
        except subprocess.TimeoutExpired:
            return "no answer"
        return (done.stdout + done.stderr).decode(errors="replace")

    def home(self, node):
        return self.work / "run" / JOB / node.name

    def log(self, node, past=0):
        """The agent's log, from a byte on."""
        try:
            with open(self.home(node) / "agent.log", "rb") as file:
                file.seek(past)
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def forget(self, node, keep_files):
        """The node is gone for good, or comes back under its name without its files."""
        if not keep_files and self.home(node).exists():
            gone = self.work / "gone"
            gone.mkdir(exist_ok=True)
            shutil.move(self.home(node), gone / f"{node.name}.{time.monotonic_ns()}")

    def fail_calls(self, pid, calls, error, first, step):
        """Every step-th of these system calls of a process fails, from the first on, until it is ended."""
        return subprocess.Popen(("strace", "-f", "-q", "-o", "/dev/null", "-p", str(pid), "-e", f"trace={calls}", "-e",
                                 f"inject={calls}:error={error}:when={first}+{step}"), stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    # ---- network and storage --------------------------------------------------------------------------------------

    def set_link(self, node, up):
        run("ip", "-n", self._prefix + "switch", "link", "set", f"to-{node.name}", "up" if up else "down")

    def set_deaf(self, node, chain, deaf):
        where = ("-i", "net0") if chain == "INPUT" else ("-o", "net0")
        run("ip", "netns", "exec", self._prefix + node.name, "iptables", "-A" if deaf else "-D", chain, *where, "-j",
            "DROP")

    def set_slow(self, node, slow):
        device = ("-n", self._prefix + node.name, "qdisc", "add" if slow else "del", "dev", "net0", "root")
        run("tc", *device, *(("tbf", "rate", "8mbit", "burst", "64kb", "latency", "500ms") if slow else ()))

    def set_noisy(self, node, knobs):
        """Loss, doubling, reordering and corruption in 1/100000 of the frames, delay in ms, seed."""
        cable = self._cables[node.name]
        cable.stdin.write((" ".join(map(str, knobs)) + "\n").encode())
        cable.stdin.flush()

    def send_noise(self, node, host, port, seed):
        enter = () if "network" in self.missing else ("ip", "netns", "exec", self._prefix + node.name)
        run(*enter, sys.executable, Path(__file__).with_name("noise.py"), host, port, str(seed))

    def set_full(self, full):
        filler = self.save_dir / "of-somebody-else"
        if not full:
            filler.unlink(missing_ok=True)
            return
        with open(filler, "wb") as file:
            size = SAVE_DIR_BYTES
            while size >= 4096:  # down to the last block
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
                except OSError:
                    size //= 2

    def set_frozen(self, frozen):
        run("fsfreeze", "-f" if frozen else "-u", self.save_dir)
