#!/usr/bin/env bash
# A job whose storage is a bucket comes back with other ranks and another sharding: every element that is read from there
# is right. Data that belongs to single ranks is left alone. Damage is found before anything is written.
. "$(dirname "$0")/jobs.sh" "$1"
. "$here/../cluster/grids.sh"
settings=$settings',"max_restore_tries":100' # most launches only look
launch 4 4x1 --with-own --steps 3 --storage
all_end
launch 2 1x2 --with-own --steps 1 --storage
all_end
resharded 3 4
launch 8 2x4 --with-own --steps 1 --storage
all_end
resharded 4 2
launch 4 2x2 --with-own
all_end
resharded 5 8
must_say 0 "^EXIT 0$"

for shard in $(bucket list | grep -E '/v0*5\.t[0-9]+/shard'); do bucket damage "$shard"; done
kill_node a # otherwise memory would have that version, too
kill_node b
launch 4 2x2 --with-own
none_ends_well "damage was restored: $(out 0)"
must_say 0 "^ERROR restore: .*shard-.*safetensors"
for rank in 0 1 2 3; do must_say $rank "^EXIT 2$"; done
no_secret
