# SPDX-License-Identifier: Apache-2.0
"""As `import tierckpt.megatron.hook`."""

from tierckpt.megatron.hook import install

__all__ = ["install"]
