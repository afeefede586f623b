# SPDX-License-Identifier: Apache-2.0
"""The trainer's end of the process that writes Megatron-LM's checkpoints."""

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Pipe

from .order import Line, Meeting, Order, Outcome

log = logging.getLogger("tierckpt")

_PROGRAM = """
import sys
sys.path[:] = {path!r}
from tierckpt.adapters.megatron.write_main import main
main({connection}, {memory}, {trainer})
"""


class WriteProcess:
    """One process. It ends with the trainer, and after an order that failed."""

    def __init__(self, memory_fd: int, meeting: Meeting) -> None:
        """memory_fd: of the SharedMemory that orders refer to."""
        self._connection, other = Pipe()
        program = _PROGRAM.format(path=sys.path, connection=other.fileno(), memory=memory_fd, trainer=os.getpid())
        self._process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL,
                                         pass_fds=(other.fileno(), memory_fd), start_new_session=True)
        other.close()
        self._order: Order | None = None
        self._ended = False
        with suppress(OSError):  # it is gone, as `outcome` says
            self._connection.send(meeting)

    @property
    def busy(self) -> bool:
        return self._order is not None

    def alive(self) -> bool:
        """It stays a zombie until `end`: its id may not be given to another one while we may kill it."""
        return not self._ended and os.waitid(os.P_PID, self._process.pid,
                                             os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def send(self, order: Order) -> None:
        self._order = order
        with suppress(OSError):  # it is gone, as `outcome` says
            self._connection.send(order)

    def outcome(self, timeout: float = 0) -> Outcome | None:
        """Of the order that was sent last, once; None if it is still being written after that many seconds."""
        order = self._order
        if order is None:
            return None
        deadline = time.monotonic() + timeout
        try:
            while self._connection.poll(max(0.0, deadline - time.monotonic())):
                said: Line | Outcome = self._connection.recv()
                if isinstance(said, Outcome):
                    self._order = None
                    if said.fault is not None:
                        self.end()
                    return said
                log.log(said.level, "%s", said.text)
            return None
        except (EOFError, OSError):
            self._order = None
            self.end()
            return Outcome(order.iteration, f"its process has ended with {_code(self._process.returncode)}")

    def end(self) -> None:
        """At once, whatever it does, with all that it has started."""
        if self._ended:
            return
        self._ended = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()


def _code(returncode: int) -> str:
    return f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"


