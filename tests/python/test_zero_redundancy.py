# SPDX-License-Identifier: Apache-2.0
"""ZeroRedundancyOptimizer is recognised, and its module is not imported by ours."""

import os
import subprocess
import sys

import torch

from tierckpt.state.zero_redundancy import is_zero_redundancy


def test_the_package_does_not_import_its_module():
    program = "import sys, tierckpt; tierckpt.init; sys.exit('torch.distributed.optim' in sys.modules)"
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    assert subprocess.run([sys.executable, "-c", program], env=env).returncode == 0


def test_it_is_recognised_once_the_program_has_imported_it():
    assert not is_zero_redundancy(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1))
    from torch.distributed.optim import ZeroRedundancyOptimizer
    assert is_zero_redundancy(ZeroRedundancyOptimizer.__new__(ZeroRedundancyOptimizer))
