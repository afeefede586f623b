# SPDX-License-Identifier: Apache-2.0
"""The network between the nodes of the demonstration.

Namespaces gives every node a network of its own (veth pair, one bridge in between) whose link can be cut. Loopback is
for users who may not make namespaces: the nodes are then groups of processes on one address.
"""

import os
import subprocess


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Namespaces:
    """One namespace for the bridge and the rendezvous store, one per node."""

    name = "network namespaces"
    device = "eth0"
    can_cut = True
    hub_address = "10.77.0.1"

    def __init__(self):
        self._prefix = f"tckdemo{os.getpid()}"
        self._spaces = []
        try:
            self._hub = self._add_space("hub")
            # Without an address of its own a bridge takes the lowest of its ports': a new node would change it, and the
            # others would not reach the hub for a minute.
            _ip("-n", self._hub, "link", "add", "br0", "address", "02:00:0a:4d:00:01", "type", "bridge")
            _ip("-n", self._hub, "addr", "add", f"{self.hub_address}/16", "dev", "br0")
            _ip("-n", self._hub, "link", "set", "br0", "up")
        except (subprocess.CalledProcessError, OSError):
            self.close()
            raise

    def _add_space(self, name):
        space = f"{self._prefix}-{name}"
        _ip("netns", "add", space)
        self._spaces.append(space)
        _ip("-n", space, "link", "set", "lo", "up")
        return space

    def add(self, node):
        """Connects a new node; returns its address."""
        number = len(self._spaces)
        address = f"10.77.{number // 200}.{number % 200 + 10}"
        space = self._add_space(node)
        _ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"v-{node}", "netns", self._hub)
        _ip("-n", self._hub, "link", "set", f"v-{node}", "master", "br0", "up")
        _ip("-n", space, "addr", "add", f"{address}/16", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        return address

    def inside(self, node, command):
        """The command line that runs the command on the node."""
        return ["ip", "netns", "exec", f"{self._prefix}-{node}", *command]

    def inside_hub(self, command):
        return ["ip", "netns", "exec", self._hub, *command]

    def cut(self, node):
        _ip("-n", self._hub, "link", "set", f"v-{node}", "down")

    def heal(self, node):
        _ip("-n", self._hub, "link", "set", f"v-{node}", "up")

    def close(self):
        for space in self._spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
        self._spaces.clear()


class Loopback:
    """No namespaces: all nodes share the loopback device, told apart by name and ports; links cannot be cut."""

    name = "plain processes on the loopback device"
    device = "lo"
    can_cut = False
    hub_address = "127.0.0.1"

    def add(self, _node):
        return self.hub_address

    def inside(self, _node, command):
        return list(command)

    def inside_hub(self, command):
        return list(command)

    def close(self):
        pass


def choose(force_loopback=False):
    """Namespaces where the rights suffice, else Loopback; and the reason for the latter, or None."""
    if force_loopback:
        return Loopback, "asked for by --loopback"
    try:
        Namespaces().close()
        return Namespaces, None
    except (subprocess.CalledProcessError, OSError) as error:
        return Loopback, (getattr(error, "stderr", None) or str(error)).strip()
