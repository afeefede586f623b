#!/usr/bin/env bash
# Another user of the machine has no access: not to the agent's directory, not through its socket even if that were open,
# and not to the memory that the supervisor keeps.
. "$(dirname "$0")/lib.sh" "$1"
needs_root
command -v setpriv >/dev/null || skip "no setpriv here"
begin 1
run_on a "0" --steps 100000 --step-ms 20
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
agent=$(agent_pid a) supervisor=$(supervisor_pid a)
as_other() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
dir=$work/run/test/a
as_other true || skip "no other user can be had here"
for python in "$(command -v python3)" /usr/bin/python3 none; do as_other "$python" -c '' 2>/dev/null && break; done
[ "$python" != none ] || skip "no python3 that another user may run"
say_hello() {
    as_other "$python" - "$dir/agent.sock" <<'PY'
import socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(20)
try:
    s.connect(sys.argv[1])
    text = b'{"op":"status"}'
    s.send(struct.pack("<4sIII", b"tcki", 13, len(text), 0) + text)
    answer = s.recv(65536)
except OSError as error:
    print("refused:", error)
    sys.exit(3)
print("closed" if not answer else "ANSWERED")
sys.exit(0 if answer else 3)
PY
}
fault "another user connects"
as_other cat "$dir/config.json" >/dev/null 2>&1 && die "another user reads the agent's directory"
say_hello && die "another user is served"
# Everything on the way there opened, as a careless administrator might.
path=$dir
while [ "$path" != / ]; do
    [ -k "$path" ] || { stat -c '%a %n' "$path" >>"$work/modes" && chmod o+x "$path"; }
    path=$(dirname "$path")
done
close_doors() { while read -r mode name; do chmod "$mode" "$name" 2>/dev/null; done <"$work/modes"; }
at_end() { close_doors; }
chmod 666 "$dir/agent.sock" "$dir/notify.sock"
fault "another user connects, directories open"
say_hello && die "another user is served through an open directory"
log_must_say a 60 'connection refused: .*user 65534'
as_other "$python" - "$dir/notify.sock" <<'PY'
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
try:
    s.sendto(b"FDSTOREREMOVE=1\nFDNAME=state.head", sys.argv[1])
    s.sendto(b"STOPPING=1", sys.argv[1])
except OSError as error:
    print(error)
PY
for pid in "$agent" "$supervisor"; do
    as_other ls "/proc/$pid/fd" >/dev/null 2>&1 && die "another user lists the descriptors of $pid"
done
kill -9 "$agent"
log_must_say a 60 'socket directory .* is open to others' # it does not serve there, and its supervisor keeps the memory
close_doors
new_agent() { local p; p=$(agent_pid a); [ -n "$p" ] && [ "$p" != "$agent" ]; }
wait_for 60 grep -q 'resuming term' "$(agent_log a)" && wait_for 60 new_agent || die "the supervisor listened to another user: the agent does not come back"
more_commits a 3 60 || die "commits do not go on once the directory is closed again"
[ "$(grep -c 'claimed term' "$(agent_log a)")" = 1 ] || die "the agent lost its state"
as_other "$bin/tierckpt" --config "$dir/config.json" status >/dev/null 2>&1 && die "the command serves another user"
for file in "$work"/save/test/secret "$(agent_log a)"; do
    as_other cat "$file" >/dev/null 2>&1 && die "another user reads $file"
done
exit 0
