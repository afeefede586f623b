#!/usr/bin/env bash
# A wall clock that jumps by hours, forward and back, affects nothing while a job trains, recovers and publishes: no
# node counts as down, no term is formed, and the newest version is restored.
. "$(dirname "$0")/lib.sh" "$1"
[ -e "$build/tests/cluster/libwall_clock.so" ] || skip "this build has no library that moves the clock"
head -c 8 /dev/zero >"$work/offset"
shifted() { shift; LD_PRELOAD=$build/tests/cluster/libwall_clock.so WALL_OFFSET_FILE=$work/offset exec "$@"; }
jump() {
    fault "wall clock of node b jumps by $1 s"
    python3 -c 'import struct,sys; f=open(sys.argv[1],"r+b"); f.write(struct.pack("<q",int(sys.argv[2])))' "$work/offset" "$1"
}
storage_interval=10
settings=',"peer_timeout_ms":30000'
start() { # OPTIONS...
    begin 2
    run_on a "0" "$@"
    in_node=shifted
    run_on b "1" "$@"
    in_node=""
}
start --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
year() { tail -1 "$(agent_log b)" | cut -c1-4; }
now=$(date -u +%Y)
jump $((5 * 365 * 86400))
more_commits b 1 60 || die "no commit after the first jump"
[ "$(year)" -gt "$now" ] || skip "the clock of the agent cannot be moved here"
for seconds in 3600 -3600 -86400 7200 0; do
    moment
    jump $seconds
    more_commits a 3 60 || die "no commits after a jump by $seconds s"
    more_commits b 3 60 || die "no commits on b after a jump by $seconds s"
done
! cat "$(agent_log a)" "$(agent_log b)" | grep 'node [ab] is down' || die "a node was taken for lost"
[ "$(grep -c 'claimed term' "$(agent_log a)")" = 1 ] || die "a new term was formed"
for seconds in -7200 7200; do
    moment
    newest=$(newest_committed b)
    kill_trainers
    jump $seconds
    start --steps 100000 --step-ms 20 --lockstep
    wait_for 60 said 0 '^STEP' || die "no start at $seconds s: $(out 0 | tail -2)"
    [ "$(restored_step 0)" -ge "$newest" ] || die "at $seconds s: restored $(restored_step 0), but $newest was committed"
    more_commits b 3 60 || die "no commits at $seconds s"
done
