#!/usr/bin/env bash
# A trainer is stopped in the middle of its copy: the version times out, and commits continue when the trainer does. If
# it is killed there, its slot belongs to no version, and the newest committed one is restored completely.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"version_timeout_ms":1000'
mem_interval=1
options=(--count $((4 << 20)) --step-ms 1 --lockstep) # 64 MiB a rank and step: it copies most of the time
# A slot that is being filled on node b, by its agent's own headers.
filling() { "$bin/ls" "$work/run/test/b/agent.sock" | grep -q '"filling"'; }
cat >"$bin/ls" <<'PY'
#!/usr/bin/env python3
# The agent's answer to {"op":"ls"}; the frame: docs/formats.md.
import socket, struct, sys
text = b'{"op":"ls"}'
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
s.send(struct.pack("<4sIII", b"tcki", 13, len(text), 0) + text)
print(s.recv(1 << 16)[16:].decode(errors="replace"))
PY
chmod +x "$bin/ls"
# stop_in_copy: rank 1 stands still with a slot of it half written.
stop_in_copy() {
    local tries
    for tries in $(seq 400); do
        builtin kill -STOP "${trainers[1]}"
        sleep 0.05
        if filling && sleep 0.5 && filling; then # with no seal on its way
            fault "stopped in its copy"
            return
        fi
        builtin kill -CONT "${trainers[1]}"
        sleep 0.0$((RANDOM % 5))3
    done
    die "it was never found in a copy"
}
begin 2
run_on a "0" --steps 100000 "${options[@]}"
run_on b "1" --steps 100000 "${options[@]}"
wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
for round in 1 2 3; do
    stop_in_copy
    before=$(commits b)
    log_must_say a 60 'version 1\.[0-9]+ is (aborted|given up)'
    [ "$(commits b)" -le $((before + 1)) ] || die "round $round: commits without rank 1"
    filling || die "round $round: its slot is taken away while it may still write there"
    kill -CONT "${trainers[1]}"
    more_commits b 3 60 || die "round $round: no commits after it goes on: $(out 1 | tail -2)"
done
for round in 1 2 3; do
    stop_in_copy
    kill -9 "${trainers[1]}"
    newest=$(newest_committed b)
    kill_trainers
    begin 2
    run_on a "0" --steps 100000 "${options[@]}"
    run_on b "1" --steps 100000 "${options[@]}"
    wait_for 60 said 1 '^(RESTORED|FRESH|ERROR)' || die "round $round: no restore"
    [ "$(restored_step 1)" -ge "$newest" ] || die "round $round: restored $(restored_step 1), but $newest was committed"
    ! said 1 '^WRONG' || die "round $round: $(out 1 | grep WRONG)"
    more_commits b 2 60 || die "round $round: no commits after it"
done
