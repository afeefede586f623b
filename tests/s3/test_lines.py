# SPDX-License-Identifier: Apache-2.0
"""Lines of SMP, of torch.distributed.checkpoint and of HyperPod whose destination is a bucket."""

import json
import sys
from pathlib import Path

import pytest
from servers import ENVIRONMENT

pytest.importorskip("torch")
TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "python"))

from harness import Job, run  # noqa: E402
from place import Site  # noqa: E402


@pytest.fixture
def site(seaweedfs, monkeypatch):
    """Agents of any job, which find the server, and no directory to save to."""
    site = Site()
    (site.dir / "config.json").write_text(json.dumps(
        {key: site.config[key] for key in ("runtime_dir", "net_address", "net_device", "copies", "linger_s",
                                           "memory_cap_bytes")}))
    site.config["job"] = ""
    for key, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL_S3": seaweedfs.url,
                       "TIERCKPT_CONFIG": str(site.dir / "config.json")}.items():
        monkeypatch.setenv(key, value)
    yield site
    site.kill_agents()


@pytest.fixture
def url(prefix):
    return f"s3://bucket/{prefix}"


def test_local_checkpoints_of_a_killed_training_go_on_from_a_bucket(site, url, tmp_path):
    with Job(tmp_path, "lines_program:local", world=2, url=url, steps=9, die_at=3) as job:
        job.killed()
    at_end = [[3, 5, [rank + 15.0]] for rank in range(2)]
    assert run(tmp_path, "lines_program:local", world=2, url=url, steps=5) == at_end, "from memory"
    site.kill_agents()
    assert run(tmp_path, "lines_program:local", world=2, url=url, steps=5) \
        == [[5, 5, w] for _, _, w in at_end], "from the bucket"


def test_checkpoints_of_all_steps_stay_and_other_numbers_of_ranks_load_them(site, url, tmp_path):
    run(tmp_path, "lines_program:save_steps", world=2, url=url, steps=[1, 2, 3, 4])
    site.kill_agents()
    expected = [100.0, 200.0, 300.0, 400.0, None]
    assert run(tmp_path, "lines_program:load_steps", world=1, url=url, steps=[1, 2, 3, 4, 5]) == [expected]
    assert run(tmp_path, "lines_program:load_steps", world=2, url=url, steps=[1, 2, 3, 4, 5]) == [expected] * 2


def test_a_hyperpod_namespace_goes_to_its_s3_path(site, seaweedfs, prefix, url, tmp_path):
    run(tmp_path, "lines_program:hyperpod", world=2, url=url, begin=0, steps=5)
    listed = seaweedfs.boto.list_objects_v2(Bucket="bucket", Prefix=f"{prefix}/run/")["Contents"]
    steps = sorted({key.split("/")[-2] for key in (entry["Key"] for entry in listed) if key.endswith("/manifest.json")})
    assert [step.split(".")[0] for step in steps] == ["v000000000002", "v000000000004"]
    assert run(tmp_path, "lines_program:hyperpod", world=2, url=url, begin=5, steps=5) == [5, 5]
    site.kill_agents()
    assert run(tmp_path, "lines_program:hyperpod", world=2, url=url, begin=5, steps=5) == [4, 4]
