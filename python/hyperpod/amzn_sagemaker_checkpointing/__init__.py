# SPDX-License-Identifier: Apache-2.0
"""The import names of HyperPod's managed tiered checkpointing: docs/frameworks/hyperpod-lines.md."""
