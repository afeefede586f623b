# SPDX-License-Identifier: Apache-2.0
"""The rendezvous store of torchrun, outside all nodes, as a cluster's scheduler or etcd would be. Prints its port."""

import signal
import sys

from torch.distributed import TCPStore


def main():
    store = TCPStore(sys.argv[1], 0, None, True, wait_for_workers=False)
    print(store.port, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
