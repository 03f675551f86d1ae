#!/bin/sh
# Let a fuzz target run for FUZZ_S seconds, 300 by default. It begins with the corpus, which stays as it is: new inputs, and the
# one that ended it, go to the directory NAME.new beside the target.
#   explore.sh FUZZ_TARGET CORPUS
set -eu
new=$1.new
mkdir -p "$new"
exec "$1" -max_total_time="${FUZZ_S:-300}" -timeout=30 -print_final_stats=1 -artifact_prefix="$new/" "$new" "$2"
