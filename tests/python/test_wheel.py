# SPDX-License-Identifier: Apache-2.0
"""The installed package works without this source tree."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import place
import tierckpt

PROGRAM = """
import json, sys, torch, tierckpt
model = torch.nn.Linear(2, 2)
with tierckpt.init(model=model, config=json.loads(sys.argv[1])) as checkpoint:
    checkpoint.save_checkpoint(1)
    checkpoint.wait("committed")
print(tierckpt.__file__)
"""


@pytest.fixture(scope="module")
def installed(top, tmp_path_factory):
    """The directory of the installed package, which is installed here if the tests run from the source tree."""
    if place.INSTALLED:
        return Path(tierckpt.__file__).parents[1]
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.skip("scikit-build-core is not installed")
    where = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index",
               "--target", str(where / "site"), "-C", f"build-dir={where / 'build'}", str(top)]
    subprocess.run(command, check=True, env={**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": "2"})
    return where / "site"


def script(installed, name="tierckpt"):
    beside = installed / "bin" / name
    return beside if beside.exists() else Path(sysconfig.get_path("scripts")) / name


def environment(installed):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TIERCKPT_")}
    return {**kept, "PYTHONPATH": str(installed)}


def test_installed_package_saves(installed, site, tmp_path):
    out = subprocess.run([sys.executable, "-c", PROGRAM, json.dumps(site.config)], check=True, cwd=tmp_path,
                         env=environment(installed), capture_output=True, text=True).stdout
    assert out.strip().startswith(str(installed))


@pytest.mark.parametrize("name", ["tierckpt", "tierckptd", "tierckpt-supervisor"])
def test_script_starts_its_program_without_torch(installed, tmp_path, name):
    blocked = tmp_path / "torch.py"
    blocked.write_text("raise ImportError('torch is not for this')\n")
    env = {**environment(installed), "PYTHONPATH": f"{installed}:{tmp_path}"}
    out = subprocess.run([str(script(installed, name)), "--help"], check=True, env=env, capture_output=True,
                         text=True).stdout
    assert out.startswith(f"Usage: {name} ")


def test_what_is_missing_is_named_in_one_line(top, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    (tmp_path / "nothing").mkdir()
    done = subprocess.run(
        ["cmake", "-S", str(top), "-B", str(tmp_path / "build"), "-DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY",
         f"-DCMAKE_FIND_ROOT_PATH={tmp_path / 'nothing'}"],
        env={**os.environ, "PKG_CONFIG_LIBDIR": str(tmp_path / "nothing"), "PKG_CONFIG_PATH": ""},
        capture_output=True, text=True)
    assert done.returncode != 0
    line = next(line for line in done.stderr.splitlines() if "apt-get install" in line)
    assert line.split("apt-get install ")[1].split() == [
        "libucx-dev", "librocksdb-dev", "liburing-dev", "libmicrohttpd-dev", "libncurses-dev", "libcjson-dev",
        "libisal-dev", "libxxhash-dev", "libssl-dev"]


def test_modules_that_are_built_are_in_the_wheel(top):
    text = (top / "python/CMakeLists.txt").read_text()
    for module in ("tierckpt_cuda", "tierckpt_nccl"):
        assert f"if(TARGET {module})" in text and f"$<TARGET_FILE:{module}> DESTINATION tierckpt/lib" in text


def test_version_is_the_one_of_the_project(top, installed):
    version = re.search(r"project\(tierckpt VERSION ([0-9.]+)", (top / "CMakeLists.txt").read_text())[1]
    assert tierckpt.__version__ == version
    program = "import importlib.metadata, tierckpt; print(tierckpt.__version__, importlib.metadata.version('tierckpt'))"
    out = subprocess.run([sys.executable, "-c", program], check=True, env=environment(installed), capture_output=True,
                         text=True).stdout
    assert out.split() == [version, version]


def test_header_of_nccl_is_found_beside_the_interpreter_that_the_wheel_is_built_for(top, tmp_path):
    """While pip builds the wheel, its sys.path lacks the packages that are installed beside it."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    header = tmp_path / "site" / "nvidia/nccl/include/nccl.h"
    header.parent.mkdir(parents=True)
    header.touch()
    python = tmp_path / "python"
    python.write_text(f"""#!{sys.executable} -S
import sys, sysconfig
sysconfig.get_path = lambda name: {{"purelib": "{tmp_path / 'site'}"}}[name]
exec(sys.argv[2])
""")
    python.chmod(0o755)
    script = tmp_path / "find.cmake"
    script.write_text(f"""
set(SKBUILD ON)
set(Python_EXECUTABLE {python})
set(TCK_NCCL OFF)
include({top}/cmake/nccl.cmake)
tck_find_nccl()
message(STATUS "found ${{TCK_NCCL_INCLUDE}}")
""")
    done = subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True, check=True)
    assert f"found {header.parent}" in done.stdout + done.stderr
