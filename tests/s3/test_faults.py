"""Our client behind a proxy that cuts, delays, repeats and damages; and its own limits."""

import http.server
import threading
import time

import pytest
from certificates import DAY, Authority
from proxy import Proxy


@pytest.fixture
def store(proxy, make):
    return make(proxy.url)


BUSY = {"status": 503, "body": "<Error><Code>SlowDown</Code><Message>Please reduce your rate.</Message></Error>"}


def test_what_is_cut_is_sent_again(proxy, store):
    proxy.fault("cut", "PUT", times=2)
    store.ok("put", "a", text="hello")
    proxy.fault("cut", "GET")
    proxy.fault("cut_answer", "GET")
    assert store.ok("get", "a")["text"] == "hello"
    proxy.fault("cut_answer", "GET")
    assert store.ok("get_range", "a", offset=1, bytes=4)["text"] == "ello"
    proxy.fault("cut", "HEAD")
    assert store.ok("head", "a")["bytes"] == 5


def test_busy_servers_are_asked_again(proxy, store):
    for status in 500, 502, 503, 504, 429, 409:
        proxy.fault("answer", "PUT", status=status)
    proxy.fault("answer", "PUT", **BUSY)
    store.ok("put", "a", text="hello")
    assert proxy.count("PUT") == 8


def test_a_server_may_say_when(proxy, store):
    proxy.fault("answer", "PUT", status=503, headers=["Retry-After: 2"])
    begun = time.monotonic()
    store.ok("put", "a", text="hello")
    assert time.monotonic() - begun >= 2


def test_the_error_after_the_deadline_says_what_happened(proxy, store):
    proxy.fault("answer", "PUT", times=1000, headers=["x-amz-request-id: R1"], **BUSY)
    answer = store("put", "v/a", text="hello", deadline_ms=1000)
    assert answer["status"] == "timed out"
    for word in "/v/a: put: ", "HTTP 503 SlowDown", "attempts in", "request id R1":
        assert word in answer["error"]
    assert answer["ms"] < 2000


def test_a_server_that_is_away_is_waited_for_until_the_deadline(make):
    answer = make("http://127.0.0.1:1")("get", "a", deadline_ms=700)
    assert answer["status"] == "timed out" and answer["ms"] < 1500, answer


def test_a_server_that_refuses_connections_is_given_up_once_nothing_moves(make):
    answer = make("http://127.0.0.1:1")("get", "a", quiet_ms=500)
    assert answer["status"] == "timed out" and answer["ms"] < 2000 and "onnect" in answer["error"], answer


def test_a_transfer_that_moves_is_not_quiet(proxy, store):
    store.ok("put", "a", text="hello")
    proxy.fault("answer", "GET", status=503, times=3, seconds=0.3, body=BUSY["body"])
    assert store.ok("get", "a", quiet_ms=600)["text"] == "hello"


def test_a_server_that_hangs_ends_with_the_deadline(proxy, store):
    proxy.fault("hang", "GET", seconds=5)
    answer = store("get", "a", deadline_ms=1000)
    assert answer["status"] == "timed out" and answer["ms"] < 2500, answer


def test_a_connection_that_stalls_is_cut_long_before_storage_is_given_up(proxy, store):
    store.ok("put", "a", text="hello")
    proxy.fault("hang", "GET", seconds=15)
    assert store.ok("get", "a")["ms"] < 10000


def test_a_call_is_canceled_from_another_thread(proxy, store):
    proxy.fault("hang", "GET", seconds=8)
    answer = store("get", "a", cancel_ms=300)
    assert answer["status"] == "canceled" and answer["ms"] < 3000, answer
    proxy.fault("answer", "GET", times=1000, **BUSY)
    answer = store("get", "a", cancel_ms=300)
    assert answer["status"] == "canceled" and answer["ms"] < 1000, answer


def test_a_creation_whose_answer_was_lost_is_ours(proxy, store):
    proxy.fault("lose", "PUT")
    store.ok("create", "a", text="mine")
    assert proxy.count("PUT") == 2
    assert store.ok("get", "a")["text"] == "mine"
    proxy.fault("answer", "PUT", status=500)
    assert store("create", "a", text="other")["status"] == "exists already"


def test_a_creation_on_a_connection_that_was_kept_is_ours(proxy, store):
    store("head", "a")
    proxy.fault("lose", "PUT")
    store.ok("create", "b", text="mine")


def test_a_creation_that_the_network_repeats_is_ours(proxy, store):
    proxy.fault("duplicate", "PUT")
    store.ok("create", "a", text="mine")


def test_a_conflict_whose_value_cannot_be_read_is_not_decided(proxy, store):
    store.ok("create", "a", text="mine")
    proxy.fault("answer", "GET", times=1000, status=500)
    answer = store("create", "a", text="other", deadline_ms=2000)
    assert answer["status"] == "timed out", answer


def test_damage_on_the_way_is_noticed(proxy, store):
    proxy.fault("corrupt", "PUT")
    store.ok("put", "a", text="hello")
    assert store.ok("get", "a")["text"] == "hello"
    proxy.fault("corrupt", "PUT", times=100)
    assert store("put", "b", size=2_000_000)["status"] == "data does not match its digest"
    assert store("get", "b")["status"] == "not found"


def test_a_large_part_that_is_damaged_is_sent_again(proxy, store):
    store.ok("begin", "m")
    proxy.fault("corrupt", "PUT", "partNumber=1")
    store.ok("part", size=5 << 20, seed=1)
    store.ok("part", size=10, seed=2)
    store.ok("finish")
    assert store.ok("get_range", "m", offset=0, bytes=5 << 20)["crc"] == store.ok("crc", size=5 << 20, seed=1)["crc"]


def upload(store, key):
    store.ok("begin", key)
    store.ok("part", size=5 << 20, seed=1)
    store.ok("part", size=100, seed=2)


def test_an_upload_whose_last_answer_was_lost_is_finished(proxy, store):
    upload(store, "m")
    proxy.fault("lose", "POST", "uploadId")
    store.ok("finish")
    assert store.ok("head", "m")["bytes"] == (5 << 20) + 100


def test_an_upload_that_was_aborted_is_not_taken_for_finished(proxy, store):
    upload(store, "m")
    store.ok("uploads", abort=1)
    proxy.fault("cut", "POST", "uploadId")
    assert store("finish")["status"] in ("not found", "input/output error")
    assert store("head", "m")["status"] == "not found"


def test_an_upload_whose_end_takes_long_is_alive_and_may_be_aborted(proxy, store):
    upload(store, "m")
    proxy.fault("delay", "POST", "uploadId", seconds=8)
    answer = store.ok("finish")
    assert answer["calls"] >= 6, answer
    assert store.ok("head", "m")["bytes"] == (5 << 20) + 100
    upload(store, "n")
    proxy.fault("hang", "POST", "uploadId", seconds=4)
    assert store("finish", deadline_ms=1000)["status"] == "timed out"
    assert store.ok("uploads")["uploads"] == [{"key": "n"}]
    store.ok("abort")
    assert store.ok("uploads")["uploads"] == []


def test_an_error_in_an_answer_200_is_an_error(proxy, store):
    upload(store, "m")
    proxy.fault("answer", "POST", "uploadId", status=200, body="<Error><Code>InternalError</Code></Error>")
    store.ok("finish")
    assert proxy.count("POST", "uploadId") == 2
    upload(store, "n")
    proxy.fault("answer", "POST", "uploadId", times=9, status=200, body="<Error><Code>AccessDenied</Code></Error>")
    assert store("finish")["status"].startswith("not permitted")


def test_a_listing_that_is_cut_is_asked_again(proxy, store):
    store.ok("put", "a", text="x")
    proxy.fault("answer", "GET", status=200, body="<ListBucketResult><Contents><Key>a</Key>")
    proxy.fault("answer", "GET", status=200, body="")
    proxy.fault("answer", "GET", status=200, body="<html><body>Sign in</body></html>")
    assert store.ok("list")["keys"] == {"a": 1}


def test_a_listing_that_does_not_say_where_it_goes_on_is_an_error(proxy, store):
    more = "<ListBucketResult><IsTruncated>true</IsTruncated>%s</ListBucketResult>"
    proxy.fault("answer", "GET", status=200, body=more % "")
    assert store("list")["status"] == "input/output error"
    proxy.fault("answer", "GET", times=9, status=200,
                body=more % "<NextContinuationToken>t</NextContinuationToken>")
    assert store("list")["status"] == "input/output error"


def test_a_listing_without_an_end_is_an_error(proxy, store, prefix):
    entries = f"<Contents><Key>{prefix}/k</Key></Contents>" * 200_000
    for i in range(6):
        proxy.fault("answer", "GET", status=200, body="<ListBucketResult><IsTruncated>true</IsTruncated>"
                    f"<NextContinuationToken>t{i}</NextContinuationToken>{entries}</ListBucketResult>")
    answer = store("list", deadline_ms=60000)
    assert answer["status"] == "input/output error" and "more than 1000000 entries" in answer["error"], answer


def test_a_clock_that_differs_is_corrected_once(proxy, store):
    skewed = "<Error><Code>RequestTimeTooSkewed</Code></Error>"
    now = time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    proxy.fault("answer", "PUT", status=403, body=skewed, headers=[now])
    store.ok("put", "a", text="x")
    far = "Date: Fri, 24 May 2013 00:00:00 GMT"
    proxy.fault("answer", "PUT", times=9, status=403, body=skewed, headers=[far])
    answer = store("put", "b", text="x")
    assert answer["status"].startswith("not permitted") and "clock" in answer["error"], answer


def test_head_has_no_document_and_yet_its_reason_is_found(proxy, store):
    store.ok("put", "a", text="x")
    proxy.fault("answer", "HEAD", status=403, headers=["Date: Fri, 24 May 2013 00:00:00 GMT"])
    answer = store("head", "a")  # with the time of the answer, the server refuses the signature
    assert answer["status"].startswith("not permitted") and "clock" in answer["error"], answer
    proxy.fault("answer", "HEAD", status=400)
    store.ok("put", "b", text="x")
    assert store.ok("head", "a")["bytes"] == 1


def test_a_listing_ends_with_its_deadline(proxy, store):
    for i in range(100):
        token = f"<NextContinuationToken>t{i}</NextContinuationToken>"
        proxy.fault("answer", "GET", status=200, seconds=0.1,
                    body=f"<ListBucketResult><IsTruncated>true</IsTruncated>{token}</ListBucketResult>")
    answer = store("list", deadline_ms=1000)
    assert answer["status"] == "timed out" and answer["ms"] < 1500, answer


def test_an_expired_token_is_replaced(proxy, make, tmp_path):
    credentials = tmp_path / "credentials"
    text = "[default]\naws_access_key_id = %s\naws_secret_access_key = test-secret-that-nobody-may-see\n"
    credentials.write_text(text % "old-id")
    store = make(proxy.url, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="",
                 AWS_SHARED_CREDENTIALS_FILE=str(credentials))
    assert store("get", "a")["status"].startswith("not permitted")
    credentials.write_text(text % "test-id")
    proxy.fault("answer", "PUT", status=400, body="<Error><Code>ExpiredToken</Code></Error>")
    store.ok("put", "a", text="x")


def test_the_page_of_something_on_the_way_does_not_say_that_a_key_is_missing(proxy, store):
    store.ok("put", "a", text="hello")
    page = {"status": 404, "body": "<html><body>Not Found</body></html>"}
    proxy.fault("answer", "GET", **page)
    assert store("get", "a")["status"] == "input/output error"
    proxy.fault("answer", "GET", **page)
    assert store("get_range", "a", offset=0, bytes=1)["status"] == "input/output error"
    proxy.fault("answer", "HEAD", status=404)
    assert store.ok("head", "a")["bytes"] == 5  # it was listed, so the server is asked again
    proxy.fault("answer", "HEAD", status=404)
    proxy.fault("answer", "GET", **page)
    answer = store("head", "a")
    assert answer["status"] == "input/output error" and "404" in answer["error"], answer
    assert store("head", "b")["status"] == "not found"


def serve_credentials(answers):
    """(URL, requests) of a service that gives these bodies, the last one again and again."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = answers[min(len(seen), len(answers) - 1)]
            seen.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/", seen


GOOD = b'{"AccessKeyId": "test-id", "SecretAccessKey": "test-secret-that-nobody-may-see"}'


def test_a_source_of_credentials_says_nothing_about_objects(proxy, make):
    url, seen = serve_credentials([b"<html>Sign in</html>"])
    store = make(proxy.url, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_CONTAINER_CREDENTIALS_FULL_URI=url)
    answer = store("get", "a", deadline_ms=1500)
    assert answer["status"] == "agent or peer cannot be reached" and "container" in answer["error"], answer
    assert answer["ms"] < 2500 and len(seen) == 1, seen
    assert store("get", "a", cancel_ms=300)["status"] == "canceled"
    store = make(proxy.url, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_EC2_METADATA_DISABLED="true", HOME="/")
    answer = store("head", "a")
    assert answer["status"] == "agent or peer cannot be reached" and "AWS_ACCESS_KEY_ID" in answer["error"], answer


def test_a_source_of_credentials_is_asked_again(proxy, make):
    url, _ = serve_credentials([b"<html>Sign in</html>", GOOD])
    store = make(proxy.url, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_CONTAINER_CREDENTIALS_FULL_URI=url)
    store.ok("put", "a", text="hello")


def test_a_request_that_cannot_be_made_says_nothing_about_the_value_there(proxy, store, make):
    store.ok("put", "a", text="hello")
    url, _ = serve_credentials([GOOD[:-1] + b', "Token": "two\\nlines"}'])
    broken = make(proxy.url, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_CONTAINER_CREDENTIALS_FULL_URI=url)
    for op in "get", "create":
        answer = broken(op, "a", text="hello", deadline_ms=1500)
        assert answer["status"] == "invalid configuration" and "line" in answer["error"], answer
    answer = store("create", "a", text="hell")
    assert answer["status"] == "exists already" and "another value is there" in answer["error"], answer


def test_a_server_without_conditions_is_told_from_others(proxy, store):
    proxy.fault("answer", "PUT", status=501, body="<Error><Code>NotImplemented</Code></Error>")
    answer = store("create", "a", text="x")
    assert answer["status"].startswith("not supported") and "If-None-Match" in answer["error"], answer
    proxy.fault("answer", "PUT", status=501, body="<Error><Code>NotImplemented</Code></Error>")
    assert "If-None-Match" not in store("put", "a", text="x")["error"]


def test_another_region_is_named(proxy, store):
    proxy.fault("answer", "GET", status=301, headers=["x-amz-bucket-region: eu-west-3"],
                body="<Error><Code>PermanentRedirect</Code></Error>")
    answer = store("get", "a")
    assert "AWS_REGION" in answer["error"] and "eu-west-3" in answer["error"]
    assert answer["status"] == "invalid configuration"


def test_a_value_whose_checksum_differs_is_read_again(proxy, store):
    store.ok("put", "a", text="hello")
    proxy.fault("corrupt_answer", "GET")
    assert store.ok("get", "a")["text"] == "hello"
    assert proxy.count("GET") == 2


def test_damage_on_the_way_is_not_damage_of_the_object(proxy, store):
    store.ok("put", "a", text="hello")
    proxy.fault("corrupt_answer", "GET", times=9)
    answer = store("get", "a")
    assert answer["status"] == "input/output error" and "checksum" in answer["error"], answer
    proxy.clear()
    for fault in {"status": 200, "body": "hello"}, {"status": 416}:
        proxy.fault("answer", "GET", **fault)
        assert store("get_range", "a", offset=1, bytes=2)["status"] == "input/output error"
    proxy.fault("answer", "GET", status=206, body="el", headers=["Content-Range: bytes 1-2/5"])
    assert store("get_range", "a", offset=1, bytes=3)["status"] == "input/output error"  # it has the third byte
    proxy.fault("answer", "GET", status=206, body="lo", headers=["Content-Range: bytes 3-4/5"])
    assert store("get_range", "a", offset=3, bytes=3)["status"] == "data does not match its digest"


def test_connections_and_sessions_of_tls_are_used_again(tls, make):
    store = make(tls.url, AWS_CA_BUNDLE=tls.bundle)
    for i in range(30):
        store.ok("put", f"k{i}", text="hello")
        assert store.ok("get", f"k{i}")["text"] == "hello"
    store.ok("put", "a", size=3_000_000, seed=4)
    made = store.ok("crc", size=3_000_000, seed=4)
    assert store.ok("get_range", "a", offset=0, bytes=3_000_000)["crc"] == made["crc"]
    assert len(tls.seen) >= 60 and tls.handshakes == 1, (len(tls.seen), tls.handshakes)
    tls.fault("cut", "GET")
    store.ok("get", "k0")
    assert tls.handshakes == 2 and tls.resumed == 1, (tls.handshakes, tls.resumed)


def refused(make, url, **environment):
    answer = make(url, **environment)("get", "a")
    assert answer["status"] == "agent or peer cannot be reached" and answer["ms"] < 2000, answer
    assert url in answer["error"] and "1 attempt in" in answer["error"], answer
    return answer["error"]


def test_a_certificate_that_cannot_be_trusted_is_an_error_that_says_why(seaweedfs, authority, make, tmp_path):
    bundle = {"AWS_CA_BUNDLE": str(authority.bundle)}
    proxies = {name: Proxy(seaweedfs.port, certificate) for name, certificate in {
        "unknown": Authority(tmp_path, "another").issue("unknown"),
        "expired": authority.issue("expired", until=-DAY),
        "other": authority.issue("other", "storage.example")}.items()}
    error = refused(make, proxies["unknown"].url, **bundle)
    assert "issued by a CA" in error and "AWS_CA_BUNDLE" in error, error
    error = refused(make, proxies["unknown"].url)  # with the certificates of the system
    assert "issued by a CA" in error, error
    error = refused(make, proxies["expired"].url, **bundle)
    assert "expired" in error and "renew" in error, error
    error = refused(make, proxies["other"].url, **bundle)
    assert "another host" in error and "AWS_ENDPOINT_URL_S3" in error, error
    error = refused(make, proxies["other"].url, AWS_CA_BUNDLE=str(tmp_path / "missing.pem"))
    assert "missing.pem" in error and "AWS_CA_BUNDLE has to name a file of certificates" in error, error
    for proxy in proxies.values():
        assert proxy.seen == []
        proxy.close()
