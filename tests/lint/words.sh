#!/usr/bin/env bash
# No notes to ourselves, no paths of somebody's machine, no dead links: markdown links name files and headings that exist.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
bad=0
complain() { printf '%s\n' "$*"; bad=1; }

self=tests/lint/words.sh
files() { git ls-files -- "$@" ":!$self" ':!tests/fuzz/corpus' ':!LICENSE'; }

# forbid WHY PATTERN: no tracked text may match.
forbid() {
    local found
    found=$(files . | xargs -d '\n' grep -nIE -- "$2" /dev/null) && complain "$1:" && printf '%s\n' "$found" | cut -c1-160
}
forbid 'a note to ourselves' '\b(TODO|FIXME|XXX)\b'
forbid 'a path of one machine' '(^|[^A-Za-z0-9_.$}/])/(home|work|Users)/[A-Za-z0-9_.]'

# The anchors of a markdown file, as GitHub makes them of its headings.
anchors() { sed -nE 's/^#+ +//p' "$1" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-'; }

check_link() { # FILE TARGET
    local path=${2%%#*} anchor=""
    [[ $2 == *"#"* ]] && anchor=${2#*#}
    case $2 in http://* | https://* | mailto:*) return ;; esac
    path=${path:+$(dirname "$1")/$path}
    path=$(realpath -m --relative-to=. "${path:-$1}")
    git ls-files --error-unmatch -- "$path" >/dev/null 2>&1 || { complain "$1: link to $2: there is no such file"; return; }
    [ -z "$anchor" ] || anchors "$path" | grep -qxF -- "$anchor" || complain "$1: link to $2: there is no such heading"
}
while IFS= read -r file; do
    while IFS= read -r target; do
        check_link "$file" "$target"
    done < <(grep -oE '\]\([^) ]+\)' "$file" | sed -E 's/^\]\(|\)$//g')
done < <(files '*.md')
exit $bad
