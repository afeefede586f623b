"""What somebody else sees and does in the bucket: bucket.py list | uploads | cat KEY | put KEY TEXT | remove KEY |
damage KEY | create BUCKET. Keys are below the job's prefix; the server and the prefix are in the environment."""

import os
import sys

import boto3

URL = os.environ["S3_URL"]
BUCKET, _, PREFIX = URL.removeprefix("s3://").partition("/")


def client():
    return boto3.client("s3", endpoint_url=os.environ["S3_ENDPOINT"], aws_access_key_id=os.environ["S3_KEY"],
                        aws_secret_access_key=os.environ["S3_SECRET"], region_name="us-east-1")


def keys(s3):
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{PREFIX}/"):
        yield from (entry["Key"].removeprefix(f"{PREFIX}/") for entry in page.get("Contents", []))


def main():
    op, *arguments = sys.argv[1:]
    s3 = client()
    where = {"Bucket": BUCKET, "Key": f"{PREFIX}/{arguments[0]}"} if arguments else {}
    if op == "list":
        print("\n".join(keys(s3)))
    elif op == "uploads":
        for upload in s3.list_multipart_uploads(Bucket=BUCKET, Prefix=f"{PREFIX}/").get("Uploads", []):
            print(upload["Key"].removeprefix(f"{PREFIX}/"))
    elif op == "cat":
        sys.stdout.write(s3.get_object(**where)["Body"].read().decode())
    elif op == "put":
        s3.put_object(**where, Body=arguments[1].encode())
    elif op == "remove":
        s3.delete_object(**where)
    elif op == "damage":
        body = bytearray(s3.get_object(**where)["Body"].read())
        body[-1] ^= 1
        s3.put_object(**where, Body=bytes(body))
    else:
        sys.exit(__doc__)


main()
