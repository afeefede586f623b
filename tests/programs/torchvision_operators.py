# SPDX-License-Identifier: Apache-2.0
"""To be imported before torchvision. The usual torchvision is built for PyTorch with CUDA. With a CPU-only PyTorch, its
compiled operators cannot be loaded, so the import fails although models need none of them. They are therefore declared
here."""

from torch import library, version

if version.cuda is None:
    for _name in ("nms", "qnms"):
        library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
