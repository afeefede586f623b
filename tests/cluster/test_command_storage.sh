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

# What does not exist is no empty directory.
for command in ls "verify published" "prune --keep 1" "forget --dry-run"; do
    must_say 1 "save_dir $work/mistyped does not exist: correct the path" look "$work/mistyped" "" $command
    must_say 1 "load_dir $work/mistyped cannot be opened" look "$work/save" ",\"load_dir\":\"$work/mistyped\"" $command
done
[ ! -e "$work/mistyped" ] || die "a command has made save_dir"
must_say 0 'no versions of job test' look "$work/empty" "" ls
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
for command in ls "verify published" "prune --keep 1" "forget --dry-run" doctor "--json ls" "--json doctor"; do
    must_say 1 "storage hangs: save_dir $work/save has not answered for 1000 ms" look "$work/save" "" $command
    [[ $command != --json* ]] || is_json <"$work/answer" || die "$command: no JSON: $(cat "$work/answer")"
done
echo good
