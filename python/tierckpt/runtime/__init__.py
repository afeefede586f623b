# SPDX-License-Identifier: Apache-2.0
"""What stands between Python and the C runtime: the library, the agent of this node, the other ranks, the log."""
