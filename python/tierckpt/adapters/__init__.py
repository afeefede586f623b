# SPDX-License-Identifier: Apache-2.0
"""An adapter for each framework, and what the adapters share. Users import them by their names in the package above."""
