#!/usr/bin/env bash
# Noise, HTTP and silence on the port for other agents while training runs: if the agent dies of it, it comes back;
# commits continue and nothing is lost.
. "$(dirname "$0")/lib.sh" "$1"
mem_interval=20 # more steps than these trainers, who do not wait for each other, drift apart
begin 2
run_on a "0" --steps 100000 --step-ms 20
run_on b "1" --steps 100000 --step-ms 20
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
moment
port=$(sed -nE 's/.* is ready at (.*) \(pid .*/\1/p' "$(agent_log a)" | tail -1)
python3 - "${port%:*}" "${port##*:}" <<'PY' || skip "the port cannot be reached"
import os, socket, sys
where = (sys.argv[1], int(sys.argv[2]))
silent = [socket.create_connection(where, 5) for _ in range(20)]
for payload in [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(65536), b"\0" * 4096, b"\xff" * 100]:
    for _ in range(3):
        s = socket.create_connection(where, 5)
        try:
            s.sendall(payload)
        except OSError:
            pass
        s.close()
PY
more_commits a 5 60 || die "commits do not go on: $(tail -5 "$(agent_log a)")"
more_commits b 5 60 || die "commits do not go on on b"
restores_all
