#!/usr/bin/env bash
# The page of all configuration keys is what the command prints of its table.
set -u
top=${1:-$(dirname "$0")/../..} build=${2:-}
command=$build/runtime/cli/tierckpt
[ -x "$command" ] || { echo "skipped: $command is not built"; exit 77; }
diff "$top/docs/configuration.md" <("$command" config --markdown) ||
    { echo "docs/configuration.md is not what the command prints: $command config --markdown >docs/configuration.md"; exit 1; }
