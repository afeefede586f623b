#!/usr/bin/env bash
# A node that holds copies of the coordinator's and reaches it only through its leader: copies need a direct session, so
# the start names both nodes and the reason, and does not begin a training that would never commit anything.
. "$(dirname "$0")/lib.sh" "$1"
# Numbers 0 to 6: b (1) leads c and d, e (4) leads f and g. Copies go from d and g to a, and back.
settings=',"tree_from_nodes":3,"heartbeat_ms":200,"peer_timeout_ms":1500,"session_wait_ms":5000'
nodes=(a b c d e f g)
make_net "${nodes[@]}"
start_all() {
    local rank
    begin 7
    for rank in "${!nodes[@]}"; do run_on "${nodes[rank]}" "$rank" "$@"; done
}
# Neither gets an answer from the other; both reach all others.
ip -n "tck$$-a" route add blackhole 10.77.0.4/32
ip -n "tck$$-d" route add blackhole 10.77.0.1/32
fault "no way between two nodes"
start_all --steps 100
lacks() { ask a --json status 2>/dev/null | python3 -c 'import json, sys
d = [n for n in json.load(sys.stdin)["nodes"] if n["name"] == "d"][0]
sys.exit(d["state"] != "no copies" or d["through"] != "b")'; }
wait_for 60 lacks || die "status of a does not say that node d takes no copies: $(ask a status)"
ask a status >"$work/answer" && die "status ends well: $(cat "$work/answer")"
grep -q '^WARNING: node d is reached only through node b, and copies need a direct session with it' "$work/answer" ||
    die "status does not warn: $(cat "$work/answer")"
none_ends_well "a rank began to train"
must_say 0 'ERROR .*copies need a direct session with node d at 10.77.0.4:[0-9]+, which is reached only through another node'
must_say 3 'ERROR .*copies need a direct session with node a at 10.77.0.1:[0-9]+, which is reached only through another node'

ip -n "tck$$-a" route del blackhole 10.77.0.4/32
ip -n "tck$$-d" route del blackhole 10.77.0.1/32
start_all --steps 20 --wait-commit --done
all_end
