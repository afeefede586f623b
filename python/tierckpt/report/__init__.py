# SPDX-License-Identifier: Apache-2.0
"""A page about one run, made from the traces that its agents have written."""
