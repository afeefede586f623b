#!/usr/bin/env bash
# gdb on a running agent shows its slots, the versions in them, and what it shares with its ranks
# (deploy/gdb/tierckpt.py).
. "$(dirname "$0")/lib.sh" "$1"
command -v gdb >/dev/null || skip "gdb is not installed"
needs_root # an agent does not let its own user look at its memory
script=$(cd "$(dirname "$0")/../../deploy/gdb" && pwd)/tierckpt.py
begin 2
run_on a "0 1" --steps 100000 --step-ms 20
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"

pid=$(agent_pid a)
gdb -nx -batch -p "$pid" -ex "source $script" -ex "tierckpt slots" -ex "tierckpt ranks" \
    -ex 'print $tierckpt_agent().term_context.node.decision.watermark' >"$work/gdb" 2>&1
! grep -qE 'Operation not permitted|Could not attach' "$work/gdb" || skip "processes may not be traced here"
! grep -q 'not supported in this copy of GDB' "$work/gdb" || skip "this gdb has no Python"
shows() { grep -qE -- "$1" "$work/gdb" || die "gdb does not show '$1' but: $(tail -40 "$work/gdb")"; }
shows '^term 1 on node 0 of 1, 2 ranks: 1\.[0-9]+ is committed'
shows '^slot +0  shard 0 [0-9a-f]{32}  (free|filling|sealed|verified) '
shows '^slot +[0-9]+  shard 1 [0-9a-f]{32}  verified +1\.[0-9]+'
shows '^rank 0  pid [0-9]+  at step [0-9]+: protected [0-9]+, committed [0-9]+'
shows '^rank 1  pid [0-9]+'
shows '^\$1 = 1\.[0-9]+$'

# Afterwards the agent goes on as before.
more_commits a 2 30 || die "nothing commits after gdb has left"
same_agent a "$pid" || die "the agent was restarted"
