# SPDX-License-Identifier: Apache-2.0
"""What somebody else sees in a bucket: versions, of which none may ever be half there, and unfinished uploads."""

import json
import re
import threading
import time

import boto3
import published
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from servers import KEY, SECRET

BUCKET = "bucket"
VERSION = re.compile(r"v(\d{12})\.t(\d+)/")
# So long a manifest may be without files: a coordinator that is superseded while it publishes deletes it again.
TRANSIENT_S = 30


class Bucket:
    def __init__(self, endpoint, prefix):
        """prefix: of the job, with a slash at the end."""
        retries = Config(retries={"max_attempts": 1}, connect_timeout=5, read_timeout=10)
        self.client = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                                   region_name="us-east-1", config=retries)
        self.prefix = prefix

    def make(self):
        self.client.create_bucket(Bucket=BUCKET)
        self.client.put_object(Bucket=BUCKET, Key="first", Body=b"")  # for which SeaweedFS makes room, for seconds

    def keys(self):
        """Bytes by key."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=self.prefix)
        return {entry["Key"].removeprefix(self.prefix): entry["Size"] for page in pages
                for entry in page.get("Contents", [])}

    def read(self, key):
        return self.client.get_object(Bucket=BUCKET, Key=self.prefix + key)["Body"].read()

    def uploads(self):
        """The keys of those that are unfinished."""
        found = self.client.list_multipart_uploads(Bucket=BUCKET, Prefix=self.prefix).get("Uploads", [])
        return [upload["Key"].removeprefix(self.prefix) for upload in found]

    def half(self):
        """What the versions that have a manifest lack: lines."""
        keys, found = self.keys(), []
        for key in keys:
            if VERSION.match(key) and key.endswith("/manifest.json"):
                try:
                    manifest = json.loads(self.read(key))
                except self.client.exceptions.NoSuchKey:  # deleted since it was listed
                    continue
                folder = key.removesuffix("manifest.json")
                found += [f"{key} without {file['name']} of {file['bytes']} bytes" for file in manifest["files"]
                          if keys.get(folder + file["name"]) != file["bytes"]]
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


class Watch(threading.Thread):
    """Looks again and again whether a version is half there; `found` has those that stay."""

    def __init__(self, bucket):
        super().__init__(daemon=True)
        self.bucket, self.since, self.found, self.looks, self.over = bucket, {}, set(), 0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.5):
            try:
                half, now = self.bucket.half(), time.monotonic()
            except (BotoCoreError, ClientError, OSError):  # the server is killed from time to time
                continue
            self.looks += 1
            self.since = {line: self.since.get(line, now) for line in half}
            self.found |= {line for line, since in self.since.items() if now - since > TRANSIENT_S}

    def end(self):
        self.over.set()
        self.join()
