# SPDX-License-Identifier: Apache-2.0
"""The first process of a node: runs the launcher and adopts every process that the node leaves behind.

A node's agents detach from the trainer that started them. As this process is their subreaper, they stay below it, and
the driver can end a node, whole, by its process tree. Leaves when the last process of the node has left.
"""

import ctypes
import os
import subprocess
import sys

PR_SET_CHILD_SUBREAPER = 36


def main():
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    launcher = subprocess.Popen(sys.argv[1:])
    status = 1
    while True:
        try:
            pid, wait_status = os.wait()
        except ChildProcessError:
            sys.exit(status)
        if pid == launcher.pid:
            launcher.returncode = status = os.waitstatus_to_exitcode(wait_status) & 0xFF
            print(f"launcher ended with status {status}", flush=True)


if __name__ == "__main__":
    main()
