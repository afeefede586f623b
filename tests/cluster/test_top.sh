#!/usr/bin/env bash
# tierckpt top on a terminal: it shows rates and warnings, goes on while the agent is restarted, ends with q, and is refused
# without a terminal.
. "$(dirname "$0")/lib.sh" "$1"
begin 2
run_on a 0 --steps 100000 --step-ms 20 --wait-commit
run_on b 1 --steps 100000 --step-ms 20 --wait-commit
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
! ask a top </dev/null >"$work/answer" 2>&1 || die "top works without a terminal"
grep -q 'top needs a terminal' "$work/answer" || die "without a terminal: $(cat "$work/answer")"

cat >"$work/terminal.py" <<'PY'
import os, pty, re, select, signal, sys, time

pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(TERM="xterm", LINES="40", COLUMNS="200")
    os.execv(sys.argv[1], [sys.argv[1], "--config", sys.argv[2], "top"])
shown = ""


def until(pattern):
    """Reads until the pattern was shown since the last call."""
    global shown
    end = time.monotonic() + 30
    while not re.search(pattern, shown):
        assert time.monotonic() < end, f"{pattern} is not shown, but {shown[-2000:]!r}"
        if select.select([terminal], [], [], 0.5)[0]:
            shown += re.sub(r"\x1b[\[(][0-9;?]*[A-Za-z]", "", os.read(terminal, 65536).decode(errors="replace"))
    shown = ""


until(r"job test, node a")
until(r"[1-9][0-9.]* steps/s")
os.kill(int(sys.argv[3]), signal.SIGSTOP)
until(r"no answer: ")
os.kill(int(sys.argv[3]), signal.SIGCONT)
until(r"job test, node a|steps/s")
os.write(terminal, b"q")
end = time.monotonic() + 30
while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
    assert time.monotonic() < end, "q does not end it"
    if select.select([terminal], [], [], 0.1)[0]:
        try:
            os.read(terminal, 65536)
        except OSError:
            pass
assert ended[1] == 0, ended
PY
python3 "$work/terminal.py" "$bin/tierckpt" "$work/a.json" "$(agent_pid a)" || die "top does not do what it should"
kill_trainers
