# SPDX-License-Identifier: Apache-2.0
"""To be imported before torchvision. The one of PyPI is built for PyTorch with CUDA; beside the PyTorch for the CPU its
compiled operators cannot be loaded, and then it cannot be imported, though models need none of them. So they are
declared here."""

from torch import library, version

if version.cuda is None:
    for _name in ("nms", "qnms"):
        library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
