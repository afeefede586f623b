#!/usr/bin/env bash
# Nodes that have IPv6 addresses only: they connect, commit and recover a lost node from its peer's copy, and what they
# send has its traffic class. A node that has IPv4 alone is refused, and the error names both addresses.
. "$(dirname "$0")/lib.sh" "$1"
net_family=6
settings=',"traffic_class":"cs1"'
make_net a b
mem_interval=5
begin 2
run_on a "0" --steps 20 --wait-commit
run_on b "1" --steps 20 --wait-commit
all_end
logged a 'node b is up at \[fd77::2\]:' || die "no session over IPv6: $(grep 'is up' "$(agent_log a)")"
ask a status >"$work/status" || true
grep -qE 'node b +up +\[fd77::2\]:[0-9]+ ' "$work/status" || die "the status does not show the address: $(cat "$work/status")"
(enter a "$bin/tierckpt" --config "$work/a.json" doctor) >"$work/doctor" || true
grep -qE 'good +network device +net0 is ' "$work/doctor" || die "doctor does not accept the interface: $(cat "$work/doctor")"
ask a doctor --network >"$work/rates" || true
grep -q 'fd77::2' "$work/rates" || die "its rate is not measured: $(cat "$work/rates")"
python3 - "$(agent_pid a)" <<'PY' || die "a socket between the agents has no traffic class"
import ctypes, os, socket, sys
agent = int(sys.argv[1])
pidfd = os.pidfd_open(agent)
classes = []
for name in os.listdir(f"/proc/{agent}/fd"):
    if not os.readlink(f"/proc/{agent}/fd/{name}").startswith("socket:"):
        continue
    fd = ctypes.CDLL(None, use_errno=True).syscall(438, pidfd, int(name), 0)  # pidfd_getfd
    with socket.socket(fileno=fd) as s:
        if s.family == socket.AF_INET6 and s.proto == socket.IPPROTO_TCP:
            classes.append(s.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS))
sys.exit(not classes or any(c != 0x20 for c in classes))
PY

kill_node b
begin 2
run_on a "0" --steps 30 --wait-commit
run_on b "1" --steps 30 --wait-commit
all_end
[ "$(restored_step 1)" = 20 ] || die "restored $(restored_step 1) instead of 20"
[ "$(restored_from 1 peer)" -gt 0 ] || die "not from the peer: $(out 1 | grep RESTORED)"

# Node b has IPv4 only now.
kill_node b
ip -n "tck$$-b" address flush dev net0
ip -n "tck$$-b" address add 10.77.0.2/24 dev net0
settings="$settings"',"session_wait_ms":4000'
begin 2
run_on a "0" --steps 40
run_on b "1" --steps 40
none_ends_well "nodes without a common family of addresses trained"
cat "$(agent_log a)" "$(agent_log b)" "$work"/out."$launch".* |
    grep -qE '(10\.77\.0\.2:[0-9]+ and \[fd77::1\]|\[fd77::1\]:[0-9]+ and 10\.77\.0\.2).* are not both IPv4 or both IPv6' ||
    die "no error names both addresses: $(cat "$work"/out."$launch".*)"
