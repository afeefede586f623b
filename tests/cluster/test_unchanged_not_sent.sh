#!/usr/bin/env bash
# A shard of which a twentieth changes in each step: after the first version only the chunks are sent that have changed, also
# after the holder's agent was killed. If the holder's copy of the version before is damaged, what is damaged there is sent,
# too, and the log names it. What the holder has made of all this is bit-equal when the sender's node is lost.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/segments.sh"
needs_root
mem_interval=1 storage_interval=4
settings=',"scrub_interval_s":0'
count=$((1 << 22)) # elements of 8 bytes in each of two tensors: 64 MiB in 17 chunks
changes=$((count / 20))
train() { run_on "$1" "$2" --count $count --changes $changes --lockstep "${@:3}"; }
# transferred NODE KEY: bytes since its agent's start.
transferred() { ask "$1" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["transfer"][sys.argv[1]])' "$2"; }

begin 2
train a 0 --steps 8 --wait-commit --wait-drained
train b 1 --steps 8 --wait-commit --wait-drained
all_end
# By the header of the file: the bytes of the image, and of the chunks with the parts that change.
read -r image changed < <(python3 - "$save_dir/$job" $((changes * 8)) <<'PY'
import glob, json, struct, sys
chunk, changes = 4 << 20, int(sys.argv[2])
for name in glob.glob(sys.argv[1] + "/v*/shard-*.safetensors"):
    with open(name, "rb") as f:
        head = struct.unpack("<Q", f.read(8))[0]
        table = json.loads(f.read(head))
    table.pop("__metadata__", None)
    if not any("params.0" in key for key in table):
        continue
    end = 8 + head + max(entry["data_offsets"][1] for entry in table.values())
    dirty = {0}
    for entry in table.values():
        begin, until = (8 + head + at for at in entry["data_offsets"])
        dirty.update(range(begin // chunk, (min(until, begin + changes) - 1) // chunk + 1))
    print(end, sum(min(chunk, end - i * chunk) for i in dirty))
    break
PY
)
[ "${changed:-0}" -gt 0 ] && [ $((changed * 4)) -lt "$image" ] || die "$changed of $image bytes change: the test is wrong"
sent=$(transferred a copied_bytes) not_sent=$(transferred a unchanged_bytes)
most=$((image + 7 * changed * 11 / 10))
[ "$sent" -le "$most" ] || die "$sent bytes were sent for a version of $image bytes and 7 in which $changed changed"
[ $((sent + not_sent)) -ge $((8 * image)) ] || die "$sent bytes were sent and $not_sent were not, of 8 times $image"
[ "$(transferred b received_bytes)" = "$sent" ] || die "node b has received $(transferred b received_bytes) bytes of $sent"
echo "$sent bytes sent, $image in the first version and $changed in each of 7"

# The next term begins with what it has restored, and the holder's agent dies in the middle of it.
begin 2
train a 0 --steps 40 --step-ms 100
train b 1 --steps 40 --step-ms 100
wait_for 60 more_commits a 5 60 || die "commits do not go on"
kill -9 "$(agent_pid b)"
all_end
[ "$(restored_step 0)" = 8 ] || die "restored $(restored_step 0) instead of 8"
sent=$(($(transferred a copied_bytes) - sent))
[ "$sent" -le $((32 * changed * 13 / 10)) ] || die "$sent bytes were sent for 32 versions of $changed changed bytes each"

# What does not change is damaged in both slots of the holder.
begin 2
train a 0 --steps 44 --step-ms 1500 --wait-commit
train b 1 --steps 44 --step-ms 1500 --wait-commit
more_commits b 2 60 || die "commits do not go on"
[ "$(spoil_at b $((image - 100000)))" -gt 0 ] || skip "no memfd of the agent can be written here"
all_end
logged b 'does not match in the version before.*so it is sent, too' || die "the holder did not find the damage in its base"
logged b 'a copy in memory is damaged and was dropped' || die "the log does not report the damage"

kill_node a
begin 2
train c 0 --steps 46 --done
train b 1 --steps 46 --done
all_end
[ "$(restored_step 0)" = 44 ] || die "restored $(restored_step 0) instead of 44"
[ "$(restored_from 0 peer)" -gt 0 ] || die "not from the holder: $(out 0 | grep RESTORED)"
