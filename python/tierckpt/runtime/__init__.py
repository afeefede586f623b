# SPDX-License-Identifier: Apache-2.0
"""The interface between Python and the C runtime: the library, the agent of this node, the other ranks, the log."""
