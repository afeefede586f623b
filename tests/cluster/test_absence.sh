#!/usr/bin/env bash
# Only what is proved to be absent counts as absent. The job's directory is away, and a node knows what was in it; the
# only published version is damaged; then it is whole again; then it, the job's directory or a term's note cannot be
# read; then a power cycle takes what was committed and never published. In each case every rank gets an error that says
# what was found, and no case is taken for a fresh start.
. "$(dirname "$0")/lib.sh" "$1"
excused="what is restored is damaged or lost on purpose"
settings=',"max_ckpt_num":0'
# The superuser reads whatever has no rights, so nothing here runs as one.
as_nobody() { shift; exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
if [ "$(id -u)" = 0 ] && (as_nobody here test -x "$trainer") 2>/dev/null; then
    chown -R 65534:65534 "$work"
    in_node=as_nobody
fi
storage_interval=4
start() { # OPTIONS...
    begin 2
    [ -z "$in_node" ] || chown 65534:65534 "$work/oob.$launch"
    run_on a 0 "$@"
    run_on b 1 "$@"
}
# all_fail PATTERN: each rank reports it, and none trains.
all_fail() {
    local pid rank
    for pid in "${trainers[@]}"; do
        wait "$pid" && die "a trainer went on: $(tail -n 3 "$work"/out."$launch".*)"
    done
    for rank in 0 1; do
        must_say $rank "^ERROR restore: .*$1"
        ! said $rank '^FRESH' || die "rank $rank began afresh"
    done
}
forget() { # OPTIONS...: as the user who runs the agents
    printf '%s' "$(node_json a)" >"$work/a.json"
    (${in_node:+$in_node a} "$bin/tierckpt" --config "$work/a.json" forget "$@") >"$work/said" 2>&1
}
nodes_lost() { kill_node a; kill_node b; }

start --steps 4 --wait-commit --wait-drained
all_end
must_say 0 '^DRAINED 4$'
nodes_lost
save=$work/save/test
version=$(echo "$save"/v*04.t1)
shard=$(ls "$version"/*.safetensors | head -1)

fault "the job's directory is away"
mv "$save" "$work/moved"
start --steps 6
all_fail 'version 1\.4 was committed, and no copy of it was found; .*tierckpt forget'
nodes_lost
rm -r "$save"
mv "$work/moved" "$save"

fault "the only published version is cut short"
cp "$shard" "$work/whole"
truncate -s -1 "$shard"
# A list is no good answer if it leaves out what it could not use.
ask a ls >"$work/said" && die "ls has a damaged version and ends with 0"
grep -q "damaged: " "$work/said" || die "ls does not say what is damaged: $(cat "$work/said")"
start --steps 6
all_fail 'version 1\.4 is damaged on storage: .*bytes, its manifest says.*no other version can be restored.*tierckpt forget'

fault "its manifest is of a newer format"
cp "$work/whole" "$shard"
cp "$version/manifest.json" "$work/manifest"
echo '{"format":2}' >"$version/manifest.json"
start --steps 6
all_fail 'version 1\.4 cannot be read by this build: .*format 2'
cp "$work/manifest" "$version/manifest.json"

start --steps 5
all_end
[ "$(restored_step 0)" = 4 ] || die "whole again, and restored $(restored_step 0) instead of 4"

if [ -n "$in_node" ] || [ "$(id -u)" != 0 ]; then
    fault "its manifest cannot be read"
    chmod 000 "$version/manifest.json"
    start --steps 5
    all_end
    [ "$(restored_step 0)" = 4 ] || die "memory has it, and rank 0 restored $(restored_step 0) instead of 4"
    nodes_lost
    start --steps 5
    all_fail 'version 1\.4 cannot be read now: .*manifest.json: Permission denied; an older one is not restored'
    chmod 644 "$version/manifest.json"
    start --steps 5
    all_end
    [ "$(restored_step 0)" = 4 ] || die "it can be read again, and rank 0 restored $(restored_step 0) instead of 4"
else
    echo "no other user can run here: what cannot be read is not looked at"
fi

nodes_lost
fault "power cycle before the first publish"
rm -rf "$save" "$work"/run/test/*/catalog*
storage_interval=0
start --steps 4 --wait-commit
all_end
wait_for 60 grep -qs committed "$save/term.1" || die "no commit is noted"
nodes_lost
rm -rf "$work"/run/test/*/catalog* # the note alone has to be enough
start --steps 5
all_fail 'term 1 has committed a version, and no copy of it was found; .*tierckpt forget'

plain=$settings
settings="$plain"',"accept_fresh_start":"on"'
start --steps 3
all_end
must_say 0 '^FRESH'
must_say 1 '^FRESH'
nodes_lost
settings=$plain
start --steps 3
all_fail 'tierckpt forget' # nothing was committed since

forget --dry-run || die "forget --dry-run: $(cat "$work/said")"
start --steps 3
all_fail 'tierckpt forget'
begin 2
[ -z "$in_node" ] || chown 65534:65534 "$work/oob.$launch"
settings="$plain"',"accept_fresh_start":"on"'
run_on a 0 --steps 1000000 --step-ms 20
run_on b 1 --steps 1000000 --step-ms 20
settings=$plain
wait_for 60 said 0 '^STEP 3' || die "rank 0 does not train: $(out 0 | tail -3)"
forget && die "forgotten while trainers live"
grep -q 'is running: rank' "$work/said" || die "forget did not say why: $(cat "$work/said")"
kill_trainers
wait_for 60 forget || die "forget: $(cat "$work/said")"
start --steps 3 --wait-commit
all_end
must_say 0 '^FRESH' # memory had versions of the terms before
nodes_lost
