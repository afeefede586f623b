#!/usr/bin/env bash
# A link that is down: noticed within peer_timeout_ms, nothing commits, nothing is lost; once it is up again commits go on
# without any restart, in the same term. Then the same for a link that is silent in one direction only.
. "$(dirname "$0")/lib.sh" "$1"
settings=',"heartbeat_ms":200,"peer_timeout_ms":1500'
make_net a b
begin 2
run_on a "0" --steps 100000 --step-ms 20
run_on b "1" --steps 100000 --step-ms 20
wait_for 30 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
agents="$(agent_pid a) $(agent_pid b)"

# no_commits_while DOWN UP: both agents notice, none commits until it is over, then both do.
no_commits_while() {
    local downs before
    downs=$(grep -c 'is down' "$(agent_log a)")
    noticed() { [ "$(grep -c 'is down' "$(agent_log a)")" -gt "$downs" ]; }
    $1
    wait_for 4 noticed || die "$1: not noticed within peer_timeout_ms"
    before="$(commits a) $(commits b)"
    sleep 2
    [ "$(commits a) $(commits b)" = "$before" ] || die "$1: commits though a node is away"
    $2
    more_commits a 3 20 || die "$2: no commits after it"
    more_commits b 3 20 || die "$2: no commits on b after it"
}
b_down() { cut_link b; }
b_up() { heal_link b; }
b_deaf() { ip netns exec "tck$$-b" iptables -A INPUT -i net0 -j DROP; }
b_hears() { ip netns exec "tck$$-b" iptables -F INPUT; }
no_commits_while b_down b_up
if ip netns exec "tck$$-b" iptables -L INPUT >/dev/null 2>&1; then
    no_commits_while b_deaf b_hears
else
    echo "no iptables here: the one-way partition is left out"
fi
[ "$(agent_pid a) $(agent_pid b)" = "$agents" ] || die "an agent was restarted"
[ "$(grep -c 'joined term' "$(agent_log b)")" = 1 ] || die "a new term was formed"
newest=$(sed -nE 's/.*version [0-9]+\.([0-9]+) is committed$/\1/p' "$(agent_log b)" | sort -n | tail -1)
kill_trainers
begin 2
run_on a "0" --steps $((newest + 20)) --done
run_on b "1" --steps $((newest + 20)) --done
all_end
[ "$(restored_step 0)" -ge "$newest" ] || die "restored $(restored_step 0), but $newest was committed"
