#!/usr/bin/env bash
# What is wrong about access to a bucket is one clear error that names it, in attach and in every command.
. "$(dirname "$0")/jobs.sh" "$1"
settings=',"storage_timeout_ms":3000'
export AWS_SECRET_ACCESS_KEY=$S3_SECRET-but-wrong
[ "$2" = lenient ] || fails "a wrong key" "SignatureDoesNotMatch"
export AWS_SECRET_ACCESS_KEY=$S3_SECRET
[ "$2" = lenient ] || AWS_ACCESS_KEY_ID=nobody fails "an unknown key" "InvalidAccessKeyId"
AWS_SECRET_ACCESS_KEY="" fails "half of a key" "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set"
save_dir=s3://nothing-here/a fails "a bucket that does not exist" "nothing-here.*NoSuchBucket"
AWS_ENDPOINT_URL_S3=http://127.0.0.1:1 fails "a server that is not there" "connect to 127\.0\.0\.1 port 1 "
AWS_ENDPOINT_URL_S3=somewhere fails "an endpoint that is no address" "AWS_ENDPOINT_URL_S3.*must be an address"
