"""Our client against each server: what it stores is what others read, and the other way round."""

import concurrent.futures

import pytest
from servers import Driver, Moto, Rclone, SeaweedFS


@pytest.fixture
def store(server, make):
    return make(server.url)


def test_a_value_is_what_others_read(server, store, prefix):
    store.ok("put", "x/a", text="hello")
    assert store.ok("get", "x/a")["text"] == "hello"
    assert server.boto.get_object(Bucket="bucket", Key=f"{prefix}/x/a")["Body"].read() == b"hello"
    server.boto.put_object(Bucket="bucket", Key=f"{prefix}/x/b", Body=b"theirs")
    assert store.ok("get", "x/b")["text"] == "theirs"
    store.ok("put", "x/a", text="replaced")
    assert store.ok("head", "x/a")["bytes"] == 8


def test_an_empty_value_is_a_value(store):
    store.ok("put", "empty", text="")
    assert store.ok("get", "empty")["bytes"] == 0
    assert store.ok("head", "empty")["bytes"] == 0


def test_a_value_that_is_too_large_is_refused(store):
    store.ok("put", "a", text="hello")
    assert store("get", "a", max=4)["status"] == "invalid argument"
    assert store.ok("get", "a", max=5)["text"] == "hello"


def test_what_is_missing_is_not_found(store):
    for op in "get", "head":
        assert store(op, "none")["status"] == "not found"
    assert store("get_range", "none", offset=0, bytes=1)["status"] == "not found"
    store.ok("remove", "none")


def test_ranges_are_exact(store):
    made = store.ok("put", "big", size=9_000_000, seed=7)
    assert made["moved"] >= 9_000_000
    whole = store.ok("get_range", "big", offset=0, bytes=9_000_000)
    assert whole["crc"] == store.ok("crc", size=9_000_000, seed=7)["crc"]
    assert store.ok("get_range", "big", offset=8_999_999, bytes=1)["bytes"] == 1
    assert store.ok("get_range", "big", offset=9_000_000, bytes=0)["bytes"] == 0
    for offset, count in (0, 9_000_001), (8_999_999, 2), (9_000_000, 1):
        assert store("get_range", "big", offset=offset, bytes=count)["status"] == "data does not match its digest"


def test_listings_have_keys_and_folders(server, store, prefix):
    server.boto.put_object(Bucket="bucket", Key=f"{prefix}b/not-below", Body=b"")
    for key in "v1/b", "v1/a", "v1/deep/c", "v2/a", "top":
        store.ok("put", key, text=key)
    assert list(store.ok("list")["keys"]) == ["top", "v1/a", "v1/b", "v1/deep/c", "v2/a"]
    assert store.ok("list", folders=1)["keys"] == {"top": 3, "v1/": 0, "v2/": 0}
    assert store.ok("list", "v1/", folders=1)["keys"] == {"v1/a": 4, "v1/b": 4, "v1/deep/": 0}
    assert store.ok("list", "none/")["keys"] == {}
    store.ok("remove", "top")
    assert "top" not in store.ok("list")["keys"]


def test_uploads_are_finished_or_aborted(server, store, prefix):
    store.ok("begin", "m")
    assert "m" not in store.ok("list")["keys"]
    store.ok("part", size=5 << 20, seed=1)
    store.ok("part", size=1000, seed=2)
    store.ok("finish")
    body = server.boto.get_object(Bucket="bucket", Key=f"{prefix}/m")["Body"].read()
    assert len(body) == (5 << 20) + 1000
    first = store.ok("get_range", "m", offset=0, bytes=5 << 20)
    assert first["crc"] == store.ok("crc", size=5 << 20, seed=1)["crc"]
    store.ok("begin", "n")
    assert store.ok("uploads")["uploads"] == [{"key": "n"}]
    store.ok("uploads", abort=1)
    assert store.ok("uploads")["uploads"] == []
    store.ok("abort")


def test_the_probe_tells_what_a_server_ignores(server, store):
    answer = store.ok("probe")
    assert answer["honours_conditions"] == (not isinstance(server, Rclone))
    assert answer["checks_checksums"] == isinstance(server, SeaweedFS)
    assert store.ok("list")["keys"] == {}


def test_of_many_writers_one_creates(server, make):
    if isinstance(server, Rclone):
        pytest.skip("rclone ignores conditions")
    stores = [make(server.url) for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for turn in range(10):
            calls = [pool.submit(store, "create", f"c{turn}", text=f"by {i}") for i, store in enumerate(stores)]
            answers = [call.result() for call in calls]
            winners = [i for i, a in enumerate(answers) if a["status"] == "success"]
            assert len(winners) == 1, answers
            assert {a["status"] for a in answers} == {"success", "exists already"}
            assert stores[0].ok("get", f"c{turn}")["text"] == f"by {winners[0]}"


def test_creating_the_same_value_again_is_no_conflict(server, store):
    store.ok("create", "a", text="mine")
    store.ok("create", "a", text="mine")


def test_wrong_credentials_are_denied(server, make):
    if isinstance(server, Moto):
        pytest.skip("moto checks no credentials")
    answer = make(server.url, AWS_ACCESS_KEY_ID="other")("get", "a")
    assert answer["status"].startswith("not permitted"), answer


def test_a_bucket_that_does_not_exist_is_named(server, make):
    driver = Driver("s3://nothing-here/a", server.url)
    answers = [driver(op, "a") for op in ("list", "get", "head")]
    driver.close()
    for answer in answers:  # never "not found", which would say that nothing was saved
        assert answer["status"] == "input/output error", answer
        assert "NoSuchBucket" in answer["error"]


def test_more_keys_than_a_page_has(server, store, prefix):
    for i in range(1005):
        server.boto.put_object(Bucket="bucket", Key=f"{prefix}/p/{i:04}", Body=b"")
    assert list(store.ok("list", "p/")["keys"]) == [f"p/{i:04}" for i in range(1005)]
