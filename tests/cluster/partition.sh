# A link between two nodes that fails in some way while both train. Sourced by tests that have set up the nodes.
# shellcheck shell=bash

# survives_break BREAK REPAIR: both agents notice, none commits until it is repaired, then both do, in the same term and
# without any restart; and nothing that was committed is lost.
survives_break() {
    local agents downs before
    begin 2
    run_on a "0" --steps 100000 --step-ms 20 --lockstep
    run_on b "1" --steps 100000 --step-ms 20 --lockstep
    wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
    agents="$(agent_pid a) $(agent_pid b)"
    downs=$(grep -c 'is down' "$(agent_log a)")
    noticed() { [ "$(grep -c 'is down' "$(agent_log a)")" -gt "$downs" ]; }
    moment
    $1
    wait_for 60 noticed || die "$1: not noticed"
    before="$(commits a) $(commits b)"
    sleep 2
    [ "$(commits a) $(commits b)" = "$before" ] || die "$1: commits though a node is away"
    moment
    $2
    more_commits a 3 60 || die "$2: no commits after it"
    more_commits b 3 60 || die "$2: no commits on b after it"
    [ "$(agent_pid a) $(agent_pid b)" = "$agents" ] || die "an agent was restarted"
    [ "$(grep -c 'joined term' "$(agent_log b)")" = 1 ] || die "a new term was formed"
    restores_all
}
