# Shared by the tests in which all of storage is away for a while and memory is all there is. The test has said how:
# storage_goes and storage_returns, and `away`, what every error then says of it.
# shellcheck shell=bash
storage_interval=4
settings=',"slots":2,"restore_wait_ms":1000,"audit_file_path":"'$work'/audit"' # no file below save_dir stays open for writing
published() { grep -c 'is published' "$(agent_log a)"; }
publishes() { [ "$(published)" -gt "$1" ]; }
start() {
    begin 2
    run_on a 0 --steps 100000 --step-ms 20 --lockstep
    run_on b 1 --steps 100000 --step-ms 20 --lockstep
}
told_last() { grep '^HEALTH ' "$work/out.$launch.$1" | tail -1 | grep -qE -- "$2"; }
everybody_is_told() {
    local rank
    for rank in 0 1; do
        wait_for 60 told_last $rank "undrained=[1-9].* $work/save/test.*$away" ||
            die "rank $rank is not told: $(grep HEALTH "$work"/out.*; tail -3 "$(agent_log a)")"
    done
    ! ask a status >"$work/said" || die "status is good"
    grep -qE "storage fails since .*$work/save/test.*$away" "$work/said" || die "status does not say it: $(cat "$work/said")"
}
all_is_well() {
    local rank
    wait_for 120 publishes "$1" || die "nothing is published though storage is back: $(tail -5 "$(agent_log a)")"
    for rank in 0 1; do
        wait_for 60 told_last $rank '^HEALTH good' || die "rank $rank is not told that it is over: $(grep HEALTH "$work"/out.*)"
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

# Trainers that are started again. No term can be claimed, so they fail; what memory has is there when storage is back,
# also that of an agent which cannot start meanwhile.
restart_in_vain() {
    local before rank agent
    moment
    storage_goes
    everybody_is_told
    more_commits a 5 60 || die "no commits to memory while storage is away"
    kill_trainers
    before=$(newest_committed a)
    agent=$(agent_pid a)
    start
    wait "${trainers[@]}" && die "a term without a claim"
    for rank in 0 1; do
        must_say $rank "^ERROR attach: .*$work/save/test.*$away"
        ! said $rank '^(RESTORED|FRESH)' || die "rank $rank has begun"
    done
    same_agent a "$agent" || die "the agent of a is another one"
    kill -9 "$(agent_pid b)"
    moment
    storage_returns
    start
    wait_for 90 said 0 '^RESTORED' || die "no restore though storage is back: $(out 0 | tail -3; tail -5 "$(agent_log a)")"
    wait_for 90 said 1 '^RESTORED' || die "no restore on b: $(out 1 | tail -3)"
    for rank in 0 1; do
        [ "$(restored_step $rank)" -ge "$before" ] || die "restored $(restored_step $rank), $before was committed"
        [ "$(restored_from $rank local)" -gt 0 ] || die "rank $rank: not from memory"
    done
    # status is good again as soon as a version is published
    before=$(published)
    wait_for 120 publishes "$before" || die "nothing is published though storage is back: $(tail -5 "$(agent_log a)")"
    wait_for 60 ask a status >"$work/said" || die "status stays bad: $(cat "$work/said")"
}
