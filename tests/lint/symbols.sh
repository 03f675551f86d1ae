#!/bin/sh
# libddp exports the names of its map, in both forms, and no others; and its headers declare the same.
#   symbols.sh MAP SHARED_LIBRARY STATIC_LIBRARY
set -eu
map=$1
shared=$2
static=$3
include=$(dirname "$map")/../include/ddp
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

sed -n 's/^ *\(ddp_[a-z0-9_]*\);$/\1/p' "$map" | sort >"$work/map"
nm -D --defined-only "$shared" | sed -n 's/.* [A-Z] \([^@ ]*\)@@DDP_0$/\1/p' | sort >"$work/shared"
nm -D --defined-only "$shared" | grep -v '@@DDP_0$' | grep -v ' A DDP_0$' >"$work/unversioned" || :
nm -g --defined-only "$static" | sed -n 's/.* [A-Z] //p' | sort >"$work/static"

compare() { # WHAT FILE
    if ! diff "$work/map" "$work/$2" >"$work/diff"; then
        echo "$1 differs from $map (< in the map, > in it):"
        cat "$work/diff"
        bad=1
    fi
}
[ -s "$work/map" ] || { echo "$map names nothing"; bad=1; }
compare "$shared" shared
compare "$static" static
if [ -s "$work/unversioned" ]; then
    echo "$shared exports what has no version:"
    cat "$work/unversioned"
    bad=1
fi
while read -r name; do # each exported name is declared in a public header
    if ! grep -qE "\b$name\(" "$include"/*.h; then
        echo "$name is exported, and declared in no header of $include"
        bad=1
    fi
done <"$work/map"
exit $bad
