#!/usr/bin/env bash
# A job comes back with other ranks and another sharding: every element read from storage is right, also in a grid of
# two dimensions. Data that belongs to single ranks is left alone, and only if that is allowed. Saves continue, and the
# old layout is there until then. What is only in memory is not ignored: the error says how to bring it to storage, and
# that works.
. "$(dirname "$0")/lib.sh" "$1"
. "$(dirname "$0")/grids.sh"
settings=',"copies":2,"max_restore_tries":100' # most launches only look
launch 4 4x1 --with-own --steps 3 --storage
all_end
launch 2 1x2 --with-own --steps 1 --storage
all_end
resharded 3 4
launch 1 1x1 --with-own --steps 1 --storage
all_end
resharded 4 2
launch 8 2x4 --with-own --steps 1 --storage
all_end
resharded 5 1
launch 4 2x2 --with-own
all_end
resharded 6 8
must_say 0 "^EXIT 0$"

# Nothing was saved in that layout: the one before is there still, and its own records are restored, too.
launch 8 2x4 --with-own --steps 1
all_end
for rank in 0 7; do must_say $rank "^RESTORED .*step=6 resharded=0 .* own=60$rank$"; done

# Step 7 is in memory alone.
launch 4 2x2 --with-own
none_ends_well "a version that only memory has was passed over: $(out 0)"
must_say 0 '^ERROR restore: .*version [0-9]+\.7 has another layout, and only memory has it.*tierckpt drain --wait'
launch 4 2x2 --with-own --restore 6
all_end
resharded 6 8
launch 8 2x4 --with-own
all_end
for rank in 0 7; do must_say $rank "^RESTORED .*step=7 resharded=0 .* own=70$rank$"; done
ask a drain --wait || die "step 7 was not drained"
launch 4 2x2 --with-own
all_end
resharded 7 8

# With as many ranks each gets its own back, whatever the sharding; with another number that must be allowed.
launch 8 8x1
all_end
for rank in 0 7; do must_say $rank "^RESTORED .*step=7 resharded=1 from=8 left=0 .* own=70$rank$"; done
launch 4 2x2
none_ends_well "each rank's own was lost without a word: $(out 0)"
must_say 0 "^ERROR restore: .*\"rank0/own\" is each rank's own, and was saved by 8 ranks: there are 4 now"
for rank in 0 1 2 3; do must_say $rank "^EXIT 2$"; done

# Another directory has the version whole, and the files of save_dir begin as they should: the ranks, which do not look
# at each of them at first, take the other ones.
kill_node a
kill_node b
mkdir "$work/load"
cp -r "$work/save/$job" "$work/load/$job"
plain=$settings
settings+=",\"load_dir\":\"$work/load\""
for shard in "$work/save/$job"/v*7.t*/shard-*; do truncate -s -1 "$shard"; done
launch 4 2x2 --with-own
all_end
resharded 7 8
for shard in "$work/save/$job"/v*7.t*/shard-*; do ln -sf "$work/load/$job/$(basename "$(dirname "$shard")")/${shard##*/}" "$shard"; done
launch 4 2x2 --with-own
all_end
resharded 7 8
settings=$plain
kill_node a # an agent might make the directory again meanwhile
kill_node b
rm -r "$work/save/$job"
mv "$work/load/$job" "$work/save/$job"

# Damage is found before anything is written.
shard=$(ls -S "$work/save/$job"/v*7.t*/shard-* | head -1)
printf '\377\377' | dd of="$shard" bs=1 seek=30000 conv=notrunc status=none
launch 4 2x2 --with-own
none_ends_well "damage was restored: $(out 0)"
must_say 0 "^ERROR restore: .*"
for rank in 0 1 2 3; do must_say $rank "^EXIT 2$"; done
