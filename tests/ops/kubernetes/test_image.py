# SPDX-License-Identifier: Apache-2.0
"""The Dockerfiles."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import chart

DOCKERFILE = chart.KUBERNETES / "Dockerfile"
DOCKERFILES = [DOCKERFILE, chart.EXAMPLES / "train.Dockerfile"]
each_dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.name)
CERTIFICATES = {"ca-certificates"}  # of servers of buckets
BUILD = pathlib.Path(os.environ["TCK_BUILD"])


def instructions(path):
    """(instruction, arguments), with continued lines joined."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE))
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def installed_packages(path):
    """By name, in the last stage."""
    last = max(i for i, (word, _) in enumerate(instructions(path)) if word == "FROM")
    text = " ".join(rest for word, rest in instructions(path)[last:] if word == "RUN")
    return set(re.search(r"--no-install-recommends ([^&]*)", text).group(1).split())


@each_dockerfile
def test_the_linter_finds_nothing(path):
    linter = shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([linter, "--failure-threshold", "style", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@each_dockerfile
def test_what_is_copied_exists(path):
    for word, rest in instructions(path):
        if word == "COPY" and "--from=" not in rest:
            *sources, _ = [part for part in rest.split() if not part.startswith("--")]
            for source in sources:
                assert source == "dist/" or (chart.TOP / source).exists(), source


def output_of(command):
    return subprocess.run(["bash", "-c", command], cwd=chart.TOP, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_the_build_installs_what_the_list_of_packages_names():
    text = DOCKERFILE.read_text()
    command = re.search(r"&& (sed .*?awk '[^']*')", text, re.DOTALL).group(1).replace("\\\n", " ")
    assert output_of(command) == output_of(". deploy/lib.sh; package_names run")


def libraries_of(*programs):
    needed = set()
    for program in programs:
        listed = subprocess.run(["readelf", "-d", BUILD / program], capture_output=True, text=True, check=True).stdout
        needed |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", listed))
    return needed


def packages_with(libraries):
    """Debian's packages that have these libraries."""
    found = set()
    for library in libraries:
        listed = subprocess.run(["dpkg-query", "-S", f"*64-linux-gnu/{library}"], capture_output=True, text=True)
        found |= {line.split(":")[0] for line in listed.stdout.splitlines()}
    return found - {"libc6", "libgcc-s1", "libstdc++6"}


def need_a_build_on_debian_12():
    version = pathlib.Path("/etc/debian_version")
    if not version.exists() or not version.read_text().startswith("12") or shutil.which("readelf") is None:
        pytest.skip("not on Debian 12, on which the image is based")
    if not (BUILD / "runtime/agent/tierckptd").exists():
        pytest.skip("the agent is not built")
    if b"sanitize=address" in (BUILD / "CMakeCache.txt").read_bytes():
        pytest.skip("built with sanitizers")


def test_the_image_has_the_libraries_of_its_programs():
    need_a_build_on_debian_12()
    libraries = libraries_of("runtime/agent/tierckptd", "runtime/agent/tierckpt-supervisor", "runtime/cli/tierckpt",
                             "runtime/client/libtierckpt.so")
    assert installed_packages(DOCKERFILE) == packages_with(libraries) | CERTIFICATES


def test_the_image_of_trainers_has_the_libraries_of_the_client():
    need_a_build_on_debian_12()
    libraries = libraries_of("runtime/client/libtierckpt.so")
    assert installed_packages(DOCKERFILES[1]) == packages_with(libraries) | CERTIFICATES


def test_the_image_runs_as_the_chart_s_user():
    user = [rest for word, rest in instructions(DOCKERFILE) if word == "USER"][-1]
    assert user == "10001:10001"
    agent, pod = chart.agent_of(chart.render(chart.DAEMONSET))
    assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == user


def test_the_first_process_finds_the_programs_where_the_image_has_them():
    script = (chart.KUBERNETES / "tierckpt-agent").read_text()
    assert "/usr/local/libexec/tierckpt" in script
    assert "--prefix /usr/local" in DOCKERFILE.read_text()


WRONG = [
    ({}, "TIERCKPT_CONFIG is not set"),
    ({"TIERCKPT_MEMORY_PERCENT": "half"}, 'TIERCKPT_MEMORY_PERCENT is "half"'),
    ({"TIERCKPT_MEMORY_PERCENT": "101"}, 'TIERCKPT_MEMORY_PERCENT is "101"'),
    ({"TIERCKPT_MEMORY_PERCENT": "50"}, "TIERCKPT_MEMORY_LIMIT has to be a number of bytes"),
]


@pytest.mark.parametrize("env, said", WRONG, ids=[said for _, said in WRONG])
def test_the_first_process_says_what_is_missing(env, said, tmp_path):
    names = {"TIERCKPT_CONFIG": "c", "TIERCKPT_JOB": "j", "TIERCKPT_NODE": "n", "TIERCKPT_RUNTIME_DIR": tmp_path}
    env = {"PATH": os.environ["PATH"], **(names if env else {}), **env}
    done = subprocess.run([chart.KUBERNETES / "tierckpt-agent"], env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert said in done.stderr
