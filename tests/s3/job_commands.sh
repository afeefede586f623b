#!/usr/bin/env bash
# The commands of a job whose versions are in a bucket: with its agents, and without any.
. "$(dirname "$0")/jobs.sh" "$1"
good() { # WHAT COMMAND...: it ends with 0 and says WHAT; and as JSON
    local what=$1
    shift
    ask a "$@" >"$work/answer" 2>&1 || die "$*: ended with $?: $(cat "$work/answer")"
    grep -q -e "$what" "$work/answer" || die "$* says: $(cat "$work/answer")"
    [ "$1" = export ] || ask a --json "$@" 2>"$work/why" | is_json || die "--json $*: $(cat "$work/why")"
}
bad() { # WHAT COMMAND...: it ends with 1 and says WHAT
    local what=$1 got=0
    shift
    ask a "$@" >"$work/answer" 2>&1 || got=$?
    [ $got = 1 ] || die "$*: ended with $got: $(cat "$work/answer")"
    grep -q -e "$what" "$work/answer" || die "$* says: $(cat "$work/answer")"
}
begin 2
run_on a 0 --steps 8 --wait-commit --wait-drained --count 5000
run_on b 1 --steps 8 --wait-commit --wait-drained --count 5000
all_end
settled() { [ "$(listed a)" = "8 4" ]; }
wait_for 60 settled || die "ls lists: $(listed a)"
good "published below $save_dir/$job:" ls
good 'published: 2' verify published
good 'term 1' status
good "good *storage *save_dir $save_dir can be written" doctor
good 'good *two starts' doctor
good 'would delete' prune --dry-run --keep 1
ask a export "$work/exported" --step 8 >"$work/answer" 2>&1 || die "export: $(cat "$work/answer")"
ask a export "$work/memory" --memory >"$work/answer" 2>&1 || die "export from memory: $(cat "$work/answer")"
cmp "$work/exported/model.safetensors" "$work/memory/model.safetensors" || die "the exports differ"

ask a stop --force >/dev/null || die "the agents do not leave"
wait_for 60 no_agent a && wait_for 60 no_agent b || die "an agent does not end"
keys=$(bucket list)
good "published below $save_dir/$job:" ls
good 'all digests match' verify published
ask a export "$work/without" >"$work/answer" 2>&1 || die "export without an agent: $(cat "$work/answer")"
cmp "$work/exported/model.safetensors" "$work/without/model.safetensors" || die "the exports differ"
good 'would' forget --dry-run
ask a doctor >"$work/answer" 2>&1
grep -q "$save_dir" "$work/answer" || die "doctor does not speak of the bucket: $(cat "$work/answer")"
[ "$(bucket list)" = "$keys" ] || die "something has changed: $(bucket list)"
good 'delete' prune --keep 1
[ "$(listed a)" = 8 ] || die "prune leaves $(listed a)"

shard=$(bucket list | grep -m1 'v000000000008.*safetensors')
bucket damage "$job/${shard#"$job/"}"
bad "$(basename "$shard")" verify published
bad "$(basename "$shard")" export "$work/damaged"
[ ! -e "$work/damaged" ] || die "damage was exported"

good 'forgotten\|starts from scratch' forget
begin 2
run_on a 0 --steps 4
run_on b 1 --steps 4
all_end
must_say 0 '^FRESH'
no_secret
