#!/usr/bin/env bash
# All nodes are lost: a start on other nodes restores from the bucket, bit for bit, shards that were uploaded in parts.
. "$(dirname "$0")/jobs.sh" "$1"
begin 2
run_on a 0 "${large[@]}" --twins 2 --steps 12 --wait-commit --wait-drained
run_on b 1 "${large[@]}" --twins 2 --steps 12 --wait-commit --wait-drained
all_end
must_say 0 '^DRAINED 12$'
all_whole a
kill_node a
kill_node b
[ -z "$(bucket uploads)" ] || die "uploads are left: $(bucket uploads)"
begin 2
run_on c 0 "${large[@]}" --twins 2 --steps 16 --wait-commit --wait-drained
run_on d 1 "${large[@]}" --twins 2 --steps 16 --wait-commit --wait-drained
all_end
for rank in 0 1; do
    [ "$(restored_step $rank)" = 12 ] || die "rank $rank restored $(restored_step $rank) instead of 12"
done
[ "$(all_restored_from storage 0 1)" -gt 0 ] || die "not from the bucket: $(out 0 | grep RESTORED)"
must_say 0 '^DRAINED 16$'
no_secret
