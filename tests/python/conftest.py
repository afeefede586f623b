# SPDX-License-Identifier: Apache-2.0
import harness

pytest_plugins = ["site_fixture"]
harness.share_imports()
