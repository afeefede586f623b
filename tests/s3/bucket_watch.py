# SPDX-License-Identifier: Apache-2.0
"""What somebody else sees in a bucket: versions, of which none may ever be half there, and unfinished uploads."""

import contextlib
import json
import re
import threading
import time
import traceback

import boto3
import published
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from seeded import Broken
from servers import KEY, SECRET

BUCKET = "bucket"
VERSION = re.compile(r"v(\d{12})\.t(\d+)/")
# So long a manifest may be without files: a coordinator that is superseded while it publishes deletes it again.
TRANSIENT_S = 30
LEAST_LOOKS = 10  # in a run, which takes half a minute or more


class Bucket:
    def __init__(self, endpoint, prefix, bound_s):
        """prefix: of the job, with a slash at the end. A server that does not serve is asked again for bound_s."""
        retries = Config(retries={"max_attempts": 1}, connect_timeout=5, read_timeout=10)
        self.client = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                                   region_name="us-east-1", config=retries)
        self.prefix, self.bound_s = prefix, bound_s

    def ask(self, request):
        deadline = time.monotonic() + self.bound_s
        while True:
            try:
                return request()
            except (BotoCoreError, ClientError, OSError) as error:
                if time.monotonic() > deadline or is_answer(error):
                    raise
            time.sleep(0.2)

    def make(self):
        self.ask(self.make_bucket)
        self.probe()

    def make_bucket(self):
        try:
            self.client.create_bucket(Bucket=BUCKET)
        except (self.client.exceptions.BucketAlreadyExists, self.client.exceptions.BucketAlreadyOwnedByYou):
            pass  # made by a request whose answer did not arrive

    def probe(self):
        """Waits until objects can be written and read. SeaweedFS makes room for the first one, for seconds."""
        def written_and_read():
            self.client.put_object(Bucket=BUCKET, Key="first", Body=b"1")
            return self.client.get_object(Bucket=BUCKET, Key="first")["Body"].read()
        self.ask(written_and_read)

    def keys(self):
        """Bytes by key."""
        def listed():
            pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=self.prefix)
            return {entry["Key"].removeprefix(self.prefix): entry["Size"] for page in pages
                    for entry in page.get("Contents", [])}
        return self.ask(listed)

    def read(self, key):
        return self.ask(lambda: self.client.get_object(Bucket=BUCKET, Key=self.prefix + key)["Body"].read())

    def uploads(self):
        """The keys of those that are unfinished, by identifier."""
        found = self.ask(lambda: self.client.list_multipart_uploads(Bucket=BUCKET, Prefix=self.prefix))
        return {upload["UploadId"]: upload["Key"].removeprefix(self.prefix) for upload in found.get("Uploads", [])}

    def half(self):
        """What the versions that have a manifest lack: lines."""
        keys, found = self.keys(), []
        for key in keys:
            if VERSION.match(key) and key.endswith("/manifest.json"):
                try:
                    found += lacking(key, self.read(key), keys)
                except self.client.exceptions.NoSuchKey:  # deleted since it was listed
                    continue
        return set(found)

    def versions(self, into, world, twins):
        """Reads all versions as a program without tierckpt does, and compares every number with what was computed:
        {(launch that computed it, step): term} and what is wrong."""
        keys, found, wrong = self.keys(), {}, []
        for key in keys:
            if (match := VERSION.match(key)) and key.endswith("/manifest.json"):
                path = into / match[0]
                path.mkdir(parents=True)
                for name in (k for k in keys if k.startswith(match[0])):
                    (into / name).write_bytes(self.read(name))
                launch, why = published.check(path, int(match[1]), world, twins)
                found[launch, int(match[1])] = int(match[2])
                wrong += [f"{match[0]} {why}"] if why else []
        return found, wrong


def is_answer(error):
    """Whether the server serves, and this is what it has to say."""
    return isinstance(error, ClientError) and error.response["ResponseMetadata"]["HTTPStatusCode"] < 500


def lacking(key, text, keys):
    """What the files of a manifest, the text at the key, lack: lines."""
    folder = key.removesuffix("manifest.json")
    try:
        files = {folder + file["name"]: file["bytes"] for file in json.loads(text)["files"]}
    except (ValueError, KeyError, TypeError) as error:
        return [f"{key} cannot be parsed: {error!r}"]
    return [f"{key} without {name} of {size} bytes" for name, size in files.items() if keys.get(name) != size]


class Watch(threading.Thread):
    """Looks again and again whether a version is half there; `found` has those that stay, and `fault` why it looks no
    more."""

    def __init__(self, bucket):
        super().__init__(daemon=True)
        self.bucket, self.since, self.found, self.looks, self.fault = bucket, {}, set(), 0, None
        self.over, self.down = threading.Event(), threading.Event()
        self.start()

    def run(self):
        try:
            while not self.over.wait(0.5):
                self.look()
        except Exception:
            self.fault = traceback.format_exc()

    def look(self):
        down = self.down.is_set()
        try:
            half, now = self.bucket.half(), time.monotonic()
        except (BotoCoreError, ClientError, OSError):
            if not down and not self.down.is_set():
                raise
            self.since = {}  # a server that is down keeps a coordinator from deleting, too
            return
        self.looks += 1
        self.since = {line: self.since.get(line, now) for line in half}
        self.found |= {line for line, since in self.since.items() if now - since > TRANSIENT_S}

    @contextlib.contextmanager
    def server_down(self):
        """Meanwhile a look may fail."""
        self.down.set()
        yield
        self.down.clear()

    def judge(self):
        if self.found:
            raise Broken(f"half a version is visible: {sorted(self.found)}")
        if self.fault:
            raise Broken(f"the bucket is not watched any more: {self.fault}")

    def judge_all(self):
        """Of a watch that has ended."""
        self.judge()
        if self.looks < LEAST_LOOKS:
            raise Broken(f"the bucket was seen {self.looks} times in the whole run, less than {LEAST_LOOKS}")

    def end(self):
        self.over.set()
        self.join()
