# SPDX-License-Identifier: Apache-2.0
"""The checkpoint itself: init, saves, loads, published versions, and the end of a process."""
