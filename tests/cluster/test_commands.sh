#!/usr/bin/env bash
# The command on a live job: every command ends with the right status and prints JSON if asked; intervals change while
# training runs and count on all ranks, also in seconds.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"max_ckpt_num":2'
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"

good() { # COMMAND...: ends with 0, in words and as JSON
    ask a "$@" >"$work/answer" || die "$*: ended with $?: $(cat "$work/answer")"
    ask a --json "$@" >"$work/answer" || die "--json $*: ended with $?: $(cat "$work/answer")"
    is_json <"$work/answer" || die "--json $*: no JSON: $(cat "$work/answer")"
}
bad() { # STATUS COMMAND...
    local wanted=$1 got=0
    shift
    ask a "$@" >"$work/answer" 2>&1 || got=$?
    [ $got = "$wanted" ] || die "$*: ended with $got instead of $wanted: $(cat "$work/answer")"
}
good status
good plan
good verify memory
good drain --wait
good verify
good ls
good prune --dry-run --keep 1
good config
ask a --json doctor | is_json || die "doctor: no JSON"
published=$(ask a --json ls | python3 -c 'import json,sys; print(json.load(sys.stdin)["published"][0]["version"]["step"])')
[ "$published" -gt 0 ] || die "ls names no published version"
bad 1 show 999999
bad 2 show
bad 2 no-such-command
bad 2 verify --step 4
bad 2 status nonsense
bad 1 config --set block_time_ms=5
bad 1 config --set save_mem_interval=often

good config --set save_mem_interval=5
from=$(sed -nE 's/.*save_mem_interval is now 5, from step ([0-9]+) on$/\1/p' "$(agent_log a)" | tail -1)
[ "$from" -gt 0 ] || die "the log does not say from which step on"
well_beyond() { [ "$(newest_committed b)" -ge $((from + 20)) ]; }
wait_for 60 well_beyond || die "no commits after the interval changed"
committed_steps b | while read -r step; do
    [ "$step" -lt "$from" ] || [ $((step % 5)) = 0 ] || die "step $step was committed at an interval of 5"
done || exit 1
ask a config --set save_mem_interval=500ms >/dev/null 2>&1 || ask a config --set save_mem_interval=0.5s >/dev/null ||
    die "an interval in seconds is refused"
more_commits b 3 60 || die "no commits at an interval in seconds"
