"""What is published in a bucket opens with what others have installed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from servers import ENVIRONMENT

HERE = pathlib.Path(__file__).resolve().parent
pytest.importorskip("s3fs")
pytest.importorskip("torch")


def python(server, *arguments):
    environment = os.environ | ENVIRONMENT | {"AWS_ENDPOINT_URL_S3": server.url}
    done = subprocess.run([sys.executable, *map(str, arguments)], env=environment, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


@pytest.mark.parametrize("form", ["tierckpt", "dcp"])
def test_stock_readers_open_a_version(form, seaweedfs, prefix, tmp_path):
    save_dir = f"s3://bucket/{prefix}"
    config = {"job": "test", "runtime_dir": str(tmp_path / "run"), "save_dir": save_dir, "copies": 1, "linger_s": 0,
              "net_device": "lo", "net_address": "127.0.0.1", "memory_cap_bytes": "256MiB", "storage_format": form}
    python(seaweedfs, HERE / "dcp_save.py", json.dumps(config), tmp_path / "reference")
    keys = [entry["Key"] for entry in seaweedfs.boto.list_objects_v2(Bucket="bucket", Prefix=f"{prefix}/")["Contents"]]
    version = next(key for key in keys if key.endswith("/manifest.json")).removesuffix("/manifest.json")
    assert (f"{version}/.metadata" in keys) == (form == "dcp")
    said = python(seaweedfs, "-I", HERE / "stock_readers.py", f"s3://bucket/{version}", tmp_path / "reference",
                  *(["dcp"] if form == "dcp" else []))
    assert "equal" in said
