#!/bin/sh
# Run a fuzz target for FUZZ_S seconds, 300 by default. It begins with the corpus, and does not change it: it writes new inputs,
# and the one that made it fail, to the directory NAME.new next to the target.
#   explore.sh FUZZ_TARGET CORPUS
set -eu
new=$1.new
mkdir -p "$new"
exec "$1" -max_total_time="${FUZZ_S:-300}" -timeout=30 -print_final_stats=1 -artifact_prefix="$new/" "$new" "$2"
