# Two nodes with two networks, of which one or both fail while they train. Sourced by tests.
# shellcheck shell=bash
settings=',"heartbeat_ms":200,"peer_timeout_ms":1500'

# train_on_two_networks: both nodes train and commit.
train_on_two_networks() {
    make_nets a b
    begin 2
    run_on a "0" --steps 100000 --step-ms 20 --lockstep
    run_on b "1" --steps 100000 --step-ms 20 --lockstep
    wait_for 60 has_commits b 3 || die "no commit: $(out 0 | tail -3)"
    more_commits a 1 60 || die "no commit on a"
    agents="$(agent_pid a) $(agent_pid b)"
}
none_is_lost() { # WHEN
    ! grep -hE ' error [ab] node [ab] .*is lost' "$(agent_log a)" "$(agent_log b)" || die "$*: a node counts as lost"
}
# starts_at_first: the session is at the first address now, to which it returns if the agent needed longer to start.
last_up() { sed -nE 's/.*node b is up at ([0-9.]+):.*/\1/p' "$(agent_log a)" | tail -1; }
is_at_first() { [ "$(last_up)" = 10.77.0.2 ]; }
starts_at_first() { wait_for 400 is_at_first || die "the first address is not used: $(last_up)"; }
ups() { grep -c "node $2 is up at $3:" "$(agent_log "$1")"; }
is_up_at() { [ "$(ups "$1" "$2" "$3")" -gt "$4" ]; } # NODE PEER HOST MORE-THAN
# switches_to HOST BREAK...: it breaks an address that is in use. Node a reaches b at this host of b, nobody counts as lost,
# and both nodes commit, in the same term and without any restart.
switches_to() {
    local host=$1 before
    shift
    before=$(ups a b "$host")
    moment
    "$@"
    wait_for 60 is_up_at a b "$host" "$before" || die "$*: a does not go on at $host"
    more_commits a 3 60 || die "$*: no commits after it"
    more_commits b 3 60 || die "$*: no commits on b after it"
    none_is_lost "$*"
    [ "$(agent_pid a) $(agent_pid b)" = "$agents" ] || die "$*: an agent was restarted"
    [ "$(grep -c 'joined term' "$(agent_log b)")" = 1 ] || die "$*: a new term was formed"
}
