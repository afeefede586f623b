# SPDX-License-Identifier: Apache-2.0
"""From the state of a training to the records and blobs that are saved of it, and back."""
