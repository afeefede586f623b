# SPDX-License-Identifier: Apache-2.0
"""A Python environment beside the build that sees this one's torch, and in it what is compared with ours."""

import subprocess
import sys
import sysconfig
import venv


def environment(build_dir):
    """Its interpreter."""
    home = build_dir / "bench-venv"
    python = home / "bin/python"
    if not python.exists():
        venv.create(home, system_site_packages=True, with_pip=True)
    # An environment made from a virtual one does not see its packages, so their place is given to it.
    site = home / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    (site / "packages_of_the_other.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def has(python, module):
    return subprocess.run([python, "-c", f"import {module}"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def install(python, package, module):
    if not has(python, module):  # without dependencies: torch is here, and nothing may replace it
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", package], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
    return has(python, module)
