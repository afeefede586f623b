# Shared by the tests in which all of storage is away for a while and only memory is left. The test defines how:
# storage_goes and storage_returns, and `away`, the text that every error then has.
# shellcheck shell=bash
storage_interval=4
settings=',"slots":2,"restore_wait_ms":1000,"audit_file_path":"'$work'/audit"' # no file below save_dir stays open for writing
undrained='[1-9]' # what every status shows at least
published() { grep -c 'is published' "$(agent_log a)"; }
publishes() { [ "$(published)" -gt "$1" ]; }
start() {
    begin 2
    run_on a 0 --steps 100000 --step-ms 20 --lockstep
    run_on b 1 --steps 100000 --step-ms 20 --lockstep
}
trouble_over() { ! told_last "$1" '^HEALTH .* undrained=[1-9]'; } # RANK; true, too, if it never reported any
told_last() { grep '^HEALTH ' "$work/out.$launch.$1" | tail -1 | grep -qE -- "$2"; }
everybody_is_told() {
    local rank
    for rank in 0 1; do
        wait_for 60 told_last $rank "undrained=$undrained.* $save_dir.*$away" ||
            die "rank $rank is not told: $(grep HEALTH "$work"/out.*; tail -3 "$(agent_log a)")"
    done
    ! ask a status >"$work/said" || die "status is good"
    grep -qE "storage has been failing since .*$save_dir.*$away" "$work/said" || die "status does not say it: $(cat "$work/said")"
}
all_is_well() {
    local rank
    wait_for 120 publishes "$1" || die "nothing is published though storage is back: $(tail -5 "$(agent_log a)")"
    for rank in 0 1; do
        wait_for 60 told_last $rank '^HEALTH good' || die "rank $rank does not report that it is over: $(grep HEALTH "$work"/out.*)"
    done
    wait_for 60 ask a status >"$work/said" || die "status stays bad: $(cat "$work/said")"
    ask a prune --keep 1 >"$work/said" 2>&1 || die "prune: $(cat "$work/said")"
    wait_for 60 ask a verify published >"$work/said" 2>&1 || die "verify: $(cat "$work/said")" # none is deleted meanwhile
}

# A job that trains on.
train_through() {
    local before
    wait_for 60 publishes 1 || die "no two versions are published, of which prune could delete one"
    moment
    storage_goes
    everybody_is_told
    more_commits a 20 60 || die "no commits to memory while storage is away"
    ! ask a prune --keep 1 >"$work/said" 2>&1 || die "prune says that it has worked: $(cat "$work/said")"
    grep -qE "$away" "$work/said" || die "prune does not say why: $(cat "$work/said")"
    before=$(published)
    storage_returns
    all_is_well "$before"
}

# Both ranks have restored what was committed, from memory.
restored_from_memory() { # COMMITTED
    local rank
    for rank in 0 1; do
        wait_for 90 said $rank '^RESTORED' || die "rank $rank does not restore: $(out $rank | tail -3; tail -5 "$(agent_log a)")"
        [ "$(restored_step $rank)" -ge "$1" ] || die "restored $(restored_step $rank), $1 was committed"
        [ "$(restored_from $rank local)" -gt 0 ] || die "rank $rank: not from memory"
    done
}
grants() { grep -c 'was granted by the agent of node\|could not be written to storage yet' "$(agent_log a)" || true; }
granted_since() { [ "$(grants)" -gt "$1" ]; }
# Trainers that are started again, twice, without storage; and once more when it is back, one agent having died meanwhile.
restart_meanwhile() {
    local before round agent had rank
    wait_for 60 has_reserved a 4 || die "no four terms are reserved: $(ask a --json status)"
    moment
    storage_goes
    everybody_is_told
    agent=$(agent_pid a)
    for round in 1 2; do
        more_commits a 5 60 || die "no commits to memory while storage is away"
        kill_trainers
        before=$(newest_committed a)
        start
        restored_from_memory "$before"
    done
    more_commits a 5 60 || die "no commits to memory in the second term without storage"
    # A start that is killed as soon as it has a term.
    kill_trainers
    before=$(newest_committed a)
    had=$(grants)
    start
    wait_for 60 granted_since "$had" || die "no term for a start without storage: $(out 0 | tail -3)"
    kill_trainers
    [ "$(newest_committed a)" -le "$before" ] || before=$(newest_committed a)
    start
    restored_from_memory "$before"
    kill_trainers
    before=$(newest_committed a)
    same_agent a "$agent" || die "the agent of a is another one"
    kill -9 "$(agent_pid b)"
    moment
    storage_returns
    start
    restored_from_memory "$before"
    # status is good again as soon as a version is published
    before=$(published)
    wait_for 120 publishes "$before" || die "nothing is published though storage is back: $(tail -5 "$(agent_log a)")"
    wait_for 60 ask a status >"$work/said" || die "status stays bad: $(cat "$work/said")"
    for rank in 0 1; do # a rank that missed this would not report the next outage as a new one
        wait_for 60 trouble_over $rank || die "rank $rank does not report that it is over: $(grep HEALTH "$work"/out.*)"
    done
}
