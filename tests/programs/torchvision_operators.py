# SPDX-License-Identifier: Apache-2.0
"""To be imported before torchvision. The one of PyPI is built for PyTorch with CUDA; beside the PyTorch for the CPU its
compiled operators cannot be loaded, and then it cannot be imported, though models need none of them. So they are
declared here."""

import torch

_DECLARED = []  # a library ends its declarations when it goes
if torch.version.cuda is None:
    _DECLARED.append(torch.library.Library("torchvision", "DEF"))
    for _name in ("nms", "qnms"):
        _DECLARED[0].define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
