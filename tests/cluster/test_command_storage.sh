#!/usr/bin/env bash
# The command reads storage: a directory that does not exist is not an empty one, load_dir counts, commands that only
# read need no write permission, and when storage hangs each command ends with an error that names the directory.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/lying.sh"
mkdir "$work/empty" "$work/read_only"
mounts+=("$work/read_only")
storage_interval=4
begin 1
run_on a 0 --steps 100000 --step-ms 20
published_twice() { local n; n=$(grep -c "is published" "$(agent_log a)" 2>/dev/null); [ "${n:-0}" -ge 2 ]; }
wait_for 60 published_twice || die "no two versions are published: $(tail -3 "$(agent_log a)")"
ask a stop --force >/dev/null || die "the agent does not leave"
kill_trainers
wait_for 60 no_agent a || die "the agent does not end"

timeout_ms=1000
look() { # SAVE_DIR [MORE JSON] COMMAND...: into $work/answer, through a pipe; the exit status
    local save=$1 more=$2
    shift 2
    (set -o pipefail; timeout 100 env -u TIERCKPT_CONFIG TIERCKPT_RUNTIME_DIR="$work/none" "$bin/tierckpt" --config-json \
        "{\"job\":\"test\",\"save_dir\":\"$save\",\"storage_timeout_ms\":$timeout_ms$more}" "$@" 2>&1 | cat >"$work/answer")
}
must_say() { # STATUS WHAT DONE...
    local wanted=$1 what=$2 got=0
    shift 2
    "$@" || got=$?
    [ $got = "$wanted" ] || die "$*: ended with $got instead of $wanted: $(cat "$work/answer")"
    grep -q -e "$what" "$work/answer" || die "$* says: $(cat "$work/answer")"
}
must_not_say() { ! grep -q -e "$1" "$work/answer" || die "it says $1: $(cat "$work/answer")"; }
json_is() { # "(ok, versions checked, damaged, unchecked)" of verify
    local said
    said=$(python3 -c 'import json, sys
v = json.load(sys.stdin)
print((v["ok"], v["versions_checked"], len(v["bad"]), len(v["unchecked"])))' <"$work/answer")
    [ "$said" = "$1" ] || die "$said instead of $1: $(cat "$work/answer")"
}

# What does not exist is no empty directory.
for command in ls "verify published" "prune --keep 1" "forget --dry-run"; do
    must_say 1 "save_dir $work/mistyped does not exist: correct the path" look "$work/mistyped" "" $command
    must_say 1 "load_dir $work/mistyped cannot be opened" look "$work/save" ",\"load_dir\":\"$work/mistyped\"" $command
done
[ ! -e "$work/mistyped" ] || die "a command has made save_dir"
must_say 0 'no versions of job test' look "$work/empty" "" ls
found_nothing='UNCHECKED: no version was found: job test has nothing in save_dir'
must_say 1 "^$found_nothing $work/empty: correct job or save_dir, or mount" look "$work/empty" "" verify published
must_not_say 'all digests match\|damage'
must_say 1 "$found_nothing" look "$work/empty" "" verify
must_say 1 'has nothing in save_dir' look "$work/empty" "" --json verify published
json_is '(False, 0, 0, 1)'
mkdir -p "$work/begun/test" && cp "$work/backing/test/.tierckpt" "$work/begun/test"
must_say 0 "^published: no version is published yet below $work/begun/test$" look "$work/begun" "" verify published
must_say 0 '^there was nothing to check$' look "$work/begun" "" verify published
must_say 0 '"ok":' look "$work/begun" "" --json verify published
json_is '(True, 0, 0, 0)'
must_say 0 '^published: [1-9]' look "$work/begun" ",\"load_dir\":\"$work/backing\"" verify published
must_say 1 "no version was found in save_dir $work/empty, which has nothing of job test, though archive_dir has" \
    look "$work/empty" ",\"archive_dir\":\"$work/backing\"" verify published
must_say 0 '(load_dir)' look "$work/empty" ",\"load_dir\":\"$work/backing\"" ls
must_say 0 'published: [1-9]' look "$work/empty" ",\"load_dir\":\"$work/backing\"" verify published

# What only looks writes nothing.
mount --bind "$work/backing" "$work/read_only" && mount -o remount,bind,ro "$work/read_only" || skip "no bind mounts here"
must_say 0 "published below $work/read_only/test:$" look "$work/read_only" "" ls
must_say 0 'all digests match' look "$work/read_only" "" verify published
must_say 0 'would delete' look "$work/read_only" "" prune --dry-run --keep 1
must_say 1 'Read-only file system: nothing can be saved there' look "$work/read_only" "" doctor
must_say 1 'room for versions  a version takes' look "$work/read_only" "" doctor
find "$work/backing" | sort >"$work/before"
must_say 0 'all digests match' look "$work/backing" "" verify published
find "$work/backing" | sort | cmp -s - "$work/before" || die "verify has made something in save_dir"

# What cannot be read is not damaged, and not good. Two versions: the bytes of one cannot be read, then the other is damaged.
versions=("$work/backing/test"/v*.t*)
unread=$(basename "${versions[0]}") damaged=${versions[1]}
lie 1000 EIO "$unread/shard-" "" open,read
must_say 1 "^UNCHECKED: $unread: open shard-.*Input/output error" look "$work/save" "" verify published
must_say 1 '^not everything could be checked' look "$work/save" "" verify published
must_not_say 'BAD\|damage\|all digests match'
must_say 1 "$unread" look "$work/save" "" --json verify published
json_is "(False, $((${#versions[@]} - 1)), 0, 1)"
must_say 1 "^UNCHECKED: load_dir $work/save: $unread: " look "$work/begun" ",\"load_dir\":\"$work/save\"" verify published
cp -r "$damaged" "$work/whole"
printf 'damaged!' | dd of="$(ls "$damaged"/shard-* | head -1)" bs=1 seek=200001 conv=notrunc status=none
must_say 1 '^damage was found: .* could not be checked$' look "$work/save" "" verify published
grep -q "^UNCHECKED: $unread: " "$work/answer" && grep -q "^BAD: $(basename "$damaged"): " "$work/answer" || die "verify: $(cat "$work/answer")"
look "$work/save" "" --json verify published
json_is "(False, $((${#versions[@]} - 1)), 1, 1)"
lie 0
must_say 1 '^damage was found: each line above is one lost copy$' look "$work/save" "" verify published
must_not_say 'UNCHECKED'
rm "$damaged/manifest.json"
must_say 1 "^BAD: load_dir $work/backing: $(basename "$damaged"): .*No such file" \
    look "$work/begun" ",\"load_dir\":\"$work/backing\"" verify published
rm -r "$damaged" && mv "$work/whole" "$damaged"
lie 1000 EIO "$unread/manifest.json" "" open,read
must_say 1 "^UNCHECKED: $unread: " look "$work/save" "" verify published
must_not_say 'BAD\|damage'
lie 0
must_say 1 '^UNCHECKED: no agent of job test runs on node ' look "$work/backing" "" verify memory
must_say 0 '^memory: no agent answers on this node$' look "$work/backing" "" verify

# A second place that answers slowly does not hang, however long a look at all of its versions takes: three are damaged.
for copy in 90001 90002 90003; do cp -r "$(ls -d "$work/backing/test"/v*.t* | tail -1)" "$work/backing/test/v0000000$copy.t9"; done
timeout_ms=4000
lie 1000 HANG manifest.json "" read 1500
must_say 1 '9.90001 .*damaged: manifest.json is of term 1' look "$work/empty" ",\"load_dir\":\"$work/save\"" ls
lie 0
timeout_ms=1000
rm -r "$work/backing/test"/v*.t9

# Storage that hangs is no reason to hang.
fault "all of storage hangs"
lie 1000 HANG "" "" "" 200000
must_say 1 "$work/save.*: storage hangs: it has not answered for 1000 ms" look "$work/save" "" export "$work/exported"
must_say 1 "the export's directory $work/save/out has not answered for 1000 ms" \
    look "$work/backing" "" export "$work/save/out"
[ ! -e "$work/exported" ] || die "something was exported"
for command in ls "verify published" "prune --keep 1" "forget --dry-run" doctor "--json ls" "--json doctor" "--json verify published"; do
    must_say 1 "storage hangs: save_dir $work/save has not answered for 1000 ms" look "$work/save" "" $command
    [[ $command != --json* ]] || is_json <"$work/answer" || die "$command: no JSON: $(cat "$work/answer")"
done
must_say 1 '^UNCHECKED: storage hangs' look "$work/save" "" verify published
must_not_say 'BAD\|damage'
echo good
