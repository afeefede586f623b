# SPDX-License-Identifier: Apache-2.0
"""Of this package, only the part for checkpoints is here."""
