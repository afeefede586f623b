#!/usr/bin/env bash
# A job continues from a version that was not committed, and the only copy of one of its shards is damaged before there
# is another one: that version's slots are freed, and commits continue.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/segments.sh"
"$bin/tierckptd" --failpoints >/dev/null 2>&1 || skip "built without failpoints: -DTCK_FAILPOINTS=ON"
settings=',"slots":2,"scrub_interval_s":0,"peer_timeout_ms":20000,"version_timeout_ms":60000'
make_net a b
command -v iptables >/dev/null || skip "iptables is not installed"
[ "$mem_interval" = 2 ] || die "the versions are called otherwise"
kill_agents() { local node; for node in a b; do kill -9 "$(agent_pid $node)"; done; }
# b stands still for a while when it is to hold what a owns: its second fetch.
run_both() {
    begin 2
    run_on a "0" "$@"
    TIERCKPT_FAILPOINTS="fetch.slot_given=sleep:3000@2" run_on b "1" "$@"
}

# attempt N: false if b stood still before it had answered its rank, so that no rank read anything before b had its copy.
attempt() {
    job=lost$1
    run_both --steps 4 --wait-commit
    all_end

    run_both --steps 100000 --step-ms 4000
    both_at() { said 0 "^STEP $1\$" && said 1 "^STEP $1\$"; }
    log_must_say a 60 'version 1\.4 has all its copies again'
    fault "partition" # so that 6 finds no way; and before anybody notices that, all are killed
    ip netns exec "tck$$-b" iptables -A INPUT -i net0 -j DROP || skip "no iptables here"
    wait_for 60 both_at 5 || die "the ranks do not come to step 5, after which 6 is saved"
    sleep 3 # digests
    term=$(newest_term a)
    ! logged a "$term\.6 is committed" || die "$term.6 was committed over a link that is down"
    kill_trainers
    kill_agents

    run_both --steps 100 --step-ms 50 --wait-commit --done
    for node in a b; do wait_for 60 joined_after $node "$term" || die "node $node joins no other term"; done
    ip netns exec "tck$$-b" iptables -F INPUT
    wait_for 60 said 0 '^RESTORED' || die "rank 0 restores nothing"
    if [ "$(out 0 | sed -nE 's/^RESTORED .*seconds=([0-9]+)\..*/\1/p')" -ge 2 ]; then # it has waited for b
        kill_trainers
        kill_node a
        kill_node b
        return 1
    fi
    [ "$(spoil a)" -gt 0 ] || skip "no memfd of the agent can be written here"
    [ "$(restored_step 0)" = 6 ] || die "rank 0 restored $(restored_step 0)"
    all_end
    must_say 0 '^COMMITTED 100$'
    logged a "version $term\.6, which this term restored, is lost" || die "the log of a does not say that $term.6 is lost"
}
for n in 1 2 3 4 5 6 7 8; do
    attempt "$n" && exit 0
done
die "b never answered its rank before it stood still"
