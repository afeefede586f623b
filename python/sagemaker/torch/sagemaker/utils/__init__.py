# SPDX-License-Identifier: Apache-2.0
"""Of this package, only the ranks of a process group are here."""
