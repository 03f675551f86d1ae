#!/bin/sh
# On two ranks and within five minutes the GPT foretells the held-out text by 0.3 nats a character better than
# counting pairs does.
# Covers: examples
. "$(dirname "$0")/common.sh"

start 2 "$chargpt" --minutes 4.5 --steps 1500 | tee "$work/out"
better=$(sed -n 's/.*nats a character, \(-*[0-9.]*\) better than.*/\1/p' "$work/out" | tail -n 1)
below 0.3 "$better"
check "better by 0.3 nats or more ($better)" $?
finish
