#!/usr/bin/env bash
# tierckpt doctor --network: the rate to each node and the way there, with a slow link marked; a node that is lost is
# named. What is measured leaves the versions in memory as they are, and waits while copies are sent.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"heartbeat_ms":200,"peer_timeout_ms":3000'
make_net a b c
fault "a link of 8 Mbit/s"
# What goes to c, from every node.
tc -n "tck$$-switch" qdisc add dev to-c root tbf rate 8mbit burst 64kb latency 500ms || skip "no tbf here"
mem_interval=1000000 # nothing is copied
begin 3
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
run_on c "2" --steps 100000 --step-ms 20 --lockstep
in_state() { # STATE COUNT: so many nodes are, as a sees it
    ask a --json status 2>/dev/null | python3 -c 'import json, sys
nodes = json.load(sys.stdin).get("nodes", [])
sys.exit(sum(n["state"] == sys.argv[1] for n in nodes) != int(sys.argv[2]))' "$@"
}
wait_for 60 in_state up 2 || die "the nodes do not meet: $(ask a status)"

peers() { # EXPRESSION: of the list `peers`, by node in `of`
    python3 -c 'import json, sys
answer = json.load(open(sys.argv[1]))
peers = answer["peers"]
of = {p["node"]: p for p in peers}
sys.exit(not eval(sys.argv[2]))' "$work/json" "$1" || die "not so: $1: $(cat "$work/json")"
}
network() { ask "$1" --json doctor --network >"$work/json"; }

ask a doctor --network >"$work/answer" && die "a slow link is good: $(cat "$work/answer")"
grep -Eq '^BAD   network rate +node c: [0-9.]+ MB/s, [0-9]+ % of the median \([0-9.]+ [MG]B/s\): SLOW, over tcp/net0 from 10\.77\.0\.1:[0-9]+ to 10\.77\.0\.3:[0-9]+$' "$work/answer" ||
    die "doctor on c: $(cat "$work/answer")"
grep -Eq '^good  network rate +node b: [0-9.]+ [MG]B/s, 100 % of the median, over tcp/net0 from 10\.77\.0\.1:[0-9]+ to 10\.77\.0\.2:[0-9]+$' "$work/answer" ||
    die "doctor on b: $(cat "$work/answer")"
network a && die "a slow link is good"
peers 'answer["ok"] is False and [p["node"] for p in peers] == ["c", "b"]'
peers 'of["c"]["slow"] and of["c"]["verdict"] == "BAD" and 0 < of["c"]["bytes_per_second"] < 1.5e6'
peers 'not of["b"]["slow"] and of["b"]["verdict"] == "good" and of["b"]["bytes_per_second"] > 2 * of["c"]["bytes_per_second"]'
ask a --json doctor | grep -q '"peers"' && die "doctor measures without being asked to"

# While versions are copied, measurements give way to them, and no version suffers.
ask a config --set save_mem_interval=5 >/dev/null || die "the interval cannot be changed"
more_commits a 1 60 || die "nothing commits: $(out 0 | tail -3)"
copies=$(commits a)
for _ in 1 2 3; do
    network a
    peers 'all("bytes_per_second" in p or "copies are being" in p["error"] or "a copy has begun" in p["error"] for p in peers)'
done
has_commits a $((copies + 1)) || more_commits a 1 60 || die "nothing commits beside measurements: $(out 0 | tail -3)"

# A lost node.
kill_node c
wait_for 60 in_state lost 1 || die "c is not lost: $(ask a status)"
network a && die "a lost node is good"
peers 'of["c"]["reachable"] is False and of["c"]["verdict"] == "BAD" and "10.77.0.3:" in of["c"]["error"]'
peers 'peers[0]["node"] == "c" and of["b"]["verdict"] == "good"'
ask a doctor --network >"$work/answer"
grep -Eq '^BAD   network rate +node c cannot be reached: no session at 10\.77\.0\.3:[0-9]+: ' "$work/answer" || die "doctor says: $(cat "$work/answer")"
kill_trainers
! grep -hE 'damaged|malformed|does not match' "$(agent_log a)" "$(agent_log b)" || die "a measurement has disturbed something"
