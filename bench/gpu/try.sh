#!/usr/bin/env bash
# The benchmarks run to their ends and what is restored is what was saved: try.sh PROGRAM LIBRARY STANDIN. With the
# stand-in in the module's place, so their figures say nothing.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp "$2" "$dir/" # under the name that the program asks for
cp -L "$3" "$dir/libtierckpt_cuda.so"
LD_LIBRARY_PATH=$dir "$1" --rounds 1 --mib 16 --dir "$dir" | tee "$dir/rows"
for id in d2h small post.100 restore digest; do
    grep -q "\"id\":\"GPU.$id\",\"what\"" "$dir/rows" || { echo "GPU.$id has no row"; exit 1; }
done
