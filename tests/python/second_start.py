# SPDX-License-Identifier: Apache-2.0
"""Another start of a job: loads with the configuration in argv[1], and trains argv[2] steps."""

import json
import sys

import torch
from torch import nn

import place  # noqa: F401  (finds the package)
import tierckpt


def main():
    config, steps = json.loads(sys.argv[1]), int(sys.argv[2])
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=config)
    except tierckpt.errors.Error as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return
    loaded = checkpoint.load_checkpoint() or 0
    print(f"loaded {loaded}", flush=True)
    for step in range(loaded + 1, loaded + steps + 1):
        optimizer.zero_grad()
        model(torch.ones(1, 64)).square().sum().backward()
        optimizer.step()
        checkpoint.save_checkpoint(step)
        checkpoint.wait("committed")
    print(f"at {loaded + steps}", flush=True)
    sys.stdin.readline()
    checkpoint.close(job_done=False)


main()
