"""Whole jobs with a bucket as storage: bash tests of this directory, and those of the cluster that fit any storage."""

import os
import pathlib
import shlex
import subprocess
import sys

import pytest
from certificates import DAY, Authority
from proxy import Proxy
from servers import ENVIRONMENT, KEY, SECRET, Rclone, SeaweedFS

from conftest import serve

HERE = pathlib.Path(__file__).resolve().parent
CLUSTER = ["all_lost", "two_launches", "second_start", "linger_drains", "sigterm_drains", "restore_older_step",
           "poisoned_version"]


def run(script, server, prefix, *arguments, endpoint=None, **environment):
    url = f"s3://bucket/{prefix}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment = clean | ENVIRONMENT | {
        "AWS_ENDPOINT_URL_S3": endpoint or server.url, "AWS_EC2_METADATA_DISABLED": "true", "TCK_SAVE_DIR": url,
        "S3_URL": url, "S3_ENDPOINT": server.url, "S3_KEY": KEY, "S3_SECRET": SECRET,
        "S3_PYTHON": sys.executable,
        "S3_SERVER": shlex.join(server.arguments), "S3_SERVER_PID": str(server.process.pid)} | environment
    done = subprocess.run(["bash", script, environment["TCK_BUILD"], *arguments], env=environment, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout[-8000:]
    assert SECRET not in done.stdout


@pytest.mark.parametrize("name", ["restored", "resharded", "scrubbed", "two_launches", "commands", "retention",
                                  "load_dir", "errors"])
def test_job(name, seaweedfs, prefix):
    run(HERE / f"job_{name}.sh", seaweedfs, prefix, "strict")


@pytest.mark.parametrize("name", ["restored", "commands"])
def test_job_over_tls(name, seaweedfs, tls, prefix):
    run(HERE / f"job_{name}.sh", seaweedfs, prefix, "strict", endpoint=tls.url, AWS_CA_BUNDLE=tls.bundle)
    assert tls.refused == 0
    assert len(tls.seen) > 5 * (tls.handshakes - tls.resumed), (len(tls.seen), tls.handshakes, tls.resumed)


def test_job_whose_server_cannot_be_trusted(seaweedfs, authority, prefix, tmp_path):
    proxies = {name: Proxy(seaweedfs.port, certificate) for name, certificate in {
        "TLS_UNKNOWN": Authority(tmp_path, "another").issue("unknown"),
        "TLS_EXPIRED": authority.issue("expired", until=-DAY),
        "TLS_OTHER_NAME": authority.issue("other", "storage.example")}.items()}
    run(HERE / "job_tls_errors.sh", seaweedfs, prefix, AWS_CA_BUNDLE=str(authority.bundle),
        TLS_NONE=seaweedfs.url.replace("http://", "https://"),
        **{name: proxy.url for name, proxy in proxies.items()})
    for proxy in proxies.values():
        proxy.close()


@pytest.mark.parametrize("name", CLUSTER)
def test_cluster(name, seaweedfs, prefix):
    run(HERE.parent / f"cluster/test_{name}.sh", seaweedfs, prefix)


def test_killed_while_draining(seaweedfs, proxy, prefix, tmp_path):
    proxy.fault("hang", "PUT", r"\.t1/.*partNumber=2", times=2, seconds=15)
    proxy.fault("delay", "PUT", r"\.t1/manifest", seconds=0)
    proxy.fault("hang", "PUT", r"\.t1/manifest", times=3, seconds=15)  # each for 6 s, then it is sent again
    run(HERE / "job_killed_while_draining.sh", seaweedfs, prefix, endpoint=proxy.url)


def test_archive(seaweedfs, proxy, prefix):
    proxy.fault("hang", "PUT", r"partNumber=2", times=2, seconds=10)
    run(HERE / "job_archive.sh", seaweedfs, prefix, endpoint=proxy.url)


@pytest.mark.parametrize("how", ["down", "hangs"])
def test_server_away(how, tmp_path_factory, prefix):
    server = serve(SeaweedFS, tmp_path_factory)
    try:
        run(HERE / "job_server_down.sh", server, prefix, how)
    finally:
        server.close()


@pytest.fixture(scope="session")
def rclone(tmp_path_factory):
    server = serve(Rclone, tmp_path_factory)
    yield server
    server.close()


def test_server_without_conditions(rclone, prefix):
    run(HERE / "job_unconditional.sh", rclone, prefix)


FAILPOINTS = HERE.parents[1] / "build/failpoints"


def failpoint_cases():
    agent = FAILPOINTS / "runtime/agent/tierckptd"
    if not agent.exists():
        return []
    names = subprocess.run([agent, "--failpoints"], text=True, capture_output=True, check=False).stdout
    cases = subprocess.run([sys.executable, HERE.parent / "cluster/failpoint_cases.py", "1", "bucket"], input=names,
                           text=True, capture_output=True, check=True)
    return cases.stdout.split()


@pytest.mark.parametrize("case", failpoint_cases())
def test_failpoint(case, seaweedfs, prefix):
    run(HERE.parent / "cluster/failpoint.sh", seaweedfs, prefix, case, TCK_BUILD=str(FAILPOINTS))
