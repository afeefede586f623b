# SPDX-License-Identifier: Apache-2.0
"""torch.sagemaker of this source tree, unless the package with these names is installed. Import it first."""

import importlib.util

import torch

from place import TOP

if importlib.util.find_spec("torch.sagemaker") is None:
    torch.__path__.append(str(TOP / "python/sagemaker/torch"))
