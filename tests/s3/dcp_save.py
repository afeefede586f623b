"""Saves one step to storage: dcp_save.py CONFIG REFERENCE; the state dict also goes to the file REFERENCE."""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "python"))
os.environ["TIERCKPT_LIBRARY"] = os.environ["TCK_BUILD"] + "/runtime/client/libtierckpt.so"
os.environ["TIERCKPT_BIN_DIR"] = os.environ["TCK_BUILD"] + "/runtime/agent"

import tierckpt.dcp  # noqa: E402

state = {"model": {"weight": torch.rand(1500, 2000), "bias": torch.rand(7, dtype=torch.float64)}, "step": 7,
         "rates": [0.5, 0.25]}
torch.save(state, sys.argv[2])
with tierckpt.dcp.attach(state, config=json.loads(sys.argv[1])) as tiers:
    dcp.save(state, checkpoint_id=7, storage_writer=tiers.writer(to_storage=True))
