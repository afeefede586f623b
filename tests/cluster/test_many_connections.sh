#!/usr/bin/env bash
# Thousands of connections to an agent's socket and port do not keep it from serving trainers and commands. Some are
# silent, some slow, some have half a frame, and all are kept open. When they are gone, the agent has no more
# descriptors than before (CONNECTIONS=n for another number).
. "$(dirname "$0")/lib.sh" "$1"
connections=${CONNECTIONS:-10000}
begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
agent=$(agent_pid a)
descriptors() { ls "/proc/$agent/fd" | wc -l; }
resident_kib() { awk '/^RssAnon/ { print $2 }' "/proc/$agent/status"; }
before=$(descriptors) kib=$(resident_kib)

# flood UNIX|TCP WHERE: opens that many, as many at a time as it may; prints that it has, and waits to be ended.
flood() {
    exec python3 - "$@" "$connections" "$work" <<'PY'
import errno, os, resource, socket, sys, time
kind, where, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
most = min(count, hard - 100, 4000)
held, made, refused = [], 0, 0
end = time.monotonic() + 120
while made < count and time.monotonic() < end:
    try:
        if kind == "unix":
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.setblocking(False)
            s.connect(where)
        else:
            host, port = where.rsplit(":", 1)
            s = socket.socket()
            s.settimeout(2)
            s.connect((host, int(port)))
    except OSError as error:
        s.close()
        refused += 1
        time.sleep(0.002)
        continue
    made += 1
    try:
        if made % 3 == 1:
            s.send(b"tcki\x01\0\0\0")  # a part of a head
        elif made % 3 == 2:
            s.send(b"\x01")
    except OSError:
        pass
    held.append(s)
    if len(held) > most:
        held.pop(0).close()
print(f"{kind}: {made} connections made, {len(held)} held, {refused} tries refused", flush=True)
time.sleep(600)
PY
}
port=$(sed -nE 's/.* is ready at (.*) \(pid .*/\1/p' "$(agent_log a)" | tail -1)
for kind in "unix $work/run/test/a/agent.sock" "tcp $port"; do
    fault "$connections connections: ${kind%% *}"
    # shellcheck disable=SC2086
    flood $kind >"$work/flood.${kind%% *}" 2>&1 &
    flooder=$!
    wait_for 180 test -s "$work/flood.${kind%% *}" || die "the flood does not end"
    cat "$work/flood.${kind%% *}"
    grep -q "$connections connections made" "$work/flood.${kind%% *}" || skip "so many connections cannot be made here"
    more_commits a 3 120 || die "$kind: commits do not go on: $(tail -5 "$(agent_log a)")"
    wait_for 60 ask a status >/dev/null || die "$kind: a command is not served"
    builtin kill -9 "$flooder"
    wait "$flooder" 2>/dev/null
done
as_before() { [ "$(descriptors)" -le $((before + 4)) ]; }
wait_for 60 as_before || die "$(descriptors) descriptors, $before before"
sanitized || [ $(($(resident_kib) - kib)) -lt 65536 ] || die "the agent has grown from $kib KiB to $(resident_kib) KiB"
same_agent a "$agent" || die "the agent died: $(tail -3 "$work/run/test/a/supervisor.log")"
! grep -q 'UCX, .*failed to close' "$(agent_log a)" || die "UCX closes what may be another's: $(grep UCX "$(agent_log a)" | tail -3)"
lines=$(grep -E 'too many connections|refused' "$(agent_log a)" | grep -vc 'save of step')
[ "$lines" -lt 1500 ] || die "$lines lines of log for it" # each that was dropped had sent nothing; they are counted, not listed
newest=$(newest_committed b)
kill_trainers
begin 2
run_on a "0" --steps $((newest + 10)) --done
run_on b "1" --steps $((newest + 10)) --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
