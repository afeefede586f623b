#!/usr/bin/env bash
# What is wrong about access to a bucket is one clear error that names it, in attach and in every command.
. "$(dirname "$0")/jobs.sh" "$1"
settings=',"storage_timeout_ms":3000'
# fails WHAT PATTERN
fails() {
    local command got
    begin 1
    run_on "n$launch" 0 --steps 4 # another node each time: a supervisor keeps the environment that it was started with
    none_ends_well "$1: the job starts"
    must_say 0 "^ERROR attach: .*$2"
    [ "$(grep -c '^ERROR' "$work/out.$launch.0")" = 1 ] || die "$1: $(out 0)"
    for command in ls "verify published" "prune --keep 1" "forget --dry-run" doctor; do
        got=0
        timeout 60 env TIERCKPT_RUNTIME_DIR="$work/none" "$bin/tierckpt" --config-json "$(node_json z)" $command >"$work/said" 2>&1 || got=$?
        [ $got = 1 ] || die "$1: $command ended with $got: $(cat "$work/said")"
        grep -qE -- "$2" "$work/said" || die "$1: $command says: $(cat "$work/said")"
    done
    ! grep -rqF -- "$S3_SECRET" "$work" || die "$1: a file has the key"
}
export AWS_SECRET_ACCESS_KEY=$S3_SECRET-but-wrong
[ "$2" = lenient ] || fails "a wrong key" "SignatureDoesNotMatch"
export AWS_SECRET_ACCESS_KEY=$S3_SECRET
[ "$2" = lenient ] || AWS_ACCESS_KEY_ID=nobody fails "an unknown key" "InvalidAccessKeyId"
AWS_SECRET_ACCESS_KEY="" fails "half of a key" "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set"
save_dir=s3://nothing-here/a fails "a bucket that does not exist" "nothing-here.*NoSuchBucket"
AWS_ENDPOINT_URL_S3=http://127.0.0.1:1 fails "a server that is not there" "connect to 127\.0\.0\.1 port 1 "
AWS_ENDPOINT_URL_S3=somewhere fails "an endpoint that is no address" "AWS_ENDPOINT_URL_S3.*must be an address"
