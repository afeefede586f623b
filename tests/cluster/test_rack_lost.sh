#!/usr/bin/env bash
# Two racks of two nodes: all nodes of one rack are lost at once, and nothing has to be restored from storage,
# whichever rack it is.
. "$(dirname "$0")/lib.sh" "$1"
base=$settings
on() { # NODE RACK RANK OPTIONS...
    local node=$1 rank=$3
    settings="$base,\"domain\":\"rack$2\""
    shift 3
    run_on "$node" "$rank" "$@"
}
begin 4
on a 1 0 --steps 20 --wait-commit
on b 1 1 --steps 20 --wait-commit
on c 2 2 --steps 20 --wait-commit
on d 2 3 --steps 20 --wait-commit
all_end
newest=$(newest_commit)
[ "$newest" = 20 ] || die "step $newest was committed, not 20"
moment
kill_node a
moment
kill_node b
begin 4
on e 1 0 --steps 30 --wait-commit
on f 1 1 --steps 30 --wait-commit
on c 2 2 --steps 30 --wait-commit
on d 2 3 --steps 30 --wait-commit
all_end
log_must_say e 60 'version .* has all its copies again|is committed'
newest=$(newest_commit)
moment
kill_node c
moment
kill_node d
begin 4
on e 1 2 --steps 40 --done
on f 1 3 --steps 40 --done
on g 2 0 --steps 40 --done
on h 2 1 --steps 40 --done
all_end
for rank in 0 1 2 3; do
    [ "$(launch=2 restored_step $rank)" = 20 ] || die "the loss of rack 1: rank $rank restored $(launch=2 restored_step $rank)"
    [ "$(restored_step $rank)" = 30 ] || die "the loss of rack 2: rank $rank restored $(restored_step $rank) instead of 30"
    [ "$(restored_from $rank storage)" = 0 ] || die "storage was used: $(out $rank | grep RESTORED)"
done
