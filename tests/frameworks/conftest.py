# SPDX-License-Identifier: Apache-2.0
"""The adapters beside the real frameworks. A framework that is not installed is a reported skip of its module."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

pytest_plugins = ["site_fixture"]
