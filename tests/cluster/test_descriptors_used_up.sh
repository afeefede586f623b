#!/usr/bin/env bash
# An agent has used up its descriptors: its trainers continue, new connections are refused without a busy loop, and
# commands are served again once there are descriptors.
. "$(dirname "$0")/lib.sh" "$1"
command -v prlimit >/dev/null || skip "no prlimit here"
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
agent=$(agent_pid a)
limit=$(prlimit --pid "$agent" --nofile --noheadings --output SOFT) || skip "the limits of the agent cannot be read"
first_free=1000000
for round in 1 2 3; do # one of them may be open for a moment
    free=0
    while [ -e "/proc/$agent/fd/$free" ]; do free=$((free + 1)); done
    first_free=$((free < first_free ? free : first_free))
    sleep 0.07
done
moment
fault "no descriptor left"
prlimit --pid "$agent" --nofile=$first_free: || skip "the limits of the agent cannot be changed"
for round in 1 2 3 4 5 6 7 8; do timeout 2 "$bin/tierckpt" --config "$work/run/test/a/config.json" status >/dev/null 2>&1; done
log_must_say a 60 'out of file descriptors'
more_commits a 3 60 || die "commits do not go on: $(tail -3 "$(agent_log a)")"
[ "$(grep -c 'out of file descriptors' "$(agent_log a)")" -lt 20 ] || die "the log is filled with it"
prlimit --pid "$agent" --nofile="$limit": || die "the limit cannot be put back"
wait_for 60 ask a status >/dev/null || die "a command is not served though there are descriptors again"
more_commits a 3 60 || die "commits do not go on after it"
same_agent a "$agent" || die "the agent was restarted"

# Not by the agent, but by those who connect to its port.
port=$(sed -nE 's/.* is ready at (.*) \(pid .*/\1/p' "$(agent_log a)" | tail -1)
prlimit --pid "$agent" --nofile=300: || skip "the limits of the agent cannot be changed"
fault "descriptors used up from outside"
python3 - "$port" >"$work/flood" <<'PY' &
import socket, sys, time
host, port = sys.argv[1].rsplit(":", 1)
held = []
while len(held) < 600:
    s = socket.socket()
    s.settimeout(2)
    try:
        s.connect((host, int(port)))
    except OSError:
        time.sleep(0.01)
        continue
    held.append(s)
print("held", flush=True)
time.sleep(3)
PY
flooder=$!
wait_for 60 test -s "$work/flood" || die "the flood does not end"
more_commits a 3 60 || die "commits do not go on while the port is flooded: $(tail -3 "$(agent_log a)")"
wait "$flooder"
prlimit --pid "$agent" --nofile="$limit": || die "the limit cannot be put back"
wait_for 60 ask a status >/dev/null || die "a command is not served after the flood"
more_commits a 3 60 || die "commits do not go on after the flood"
same_agent a "$agent" || die "the agent was restarted"
bytes=$(cat "$work/run/test/a/"{agent,supervisor}.log | wc -c)
[ "$bytes" -lt 1000000 ] || die "$bytes bytes of log for it"
logged a 'UCX, .*accept' || die "what UCX says of it is lost"
