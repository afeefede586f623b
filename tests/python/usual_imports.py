# SPDX-License-Identifier: Apache-2.0
"""What most trainings of these tests import sooner or later, for the process that forks them: it takes seconds."""

import torch._dynamo  # noqa: F401 - torch imports it at the first step of an optimizer
import torch.distributed.checkpoint  # noqa: F401
import torch.distributed.fsdp  # noqa: F401
import torch.distributed.optim  # noqa: F401
import torch.distributed.tensor  # noqa: F401
import torch.nn.parallel  # noqa: F401
