#!/bin/sh
# Each function of libddp has a manual page, and a text in its header that lists its failures. The checks find it if one is missing.
#   reference.sh SOURCE_ROOT
set -eu
cd "$1"
map=worker-runtime/libddp.map
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

scripts/api-reference --check "$map" include/ddp/*.h || bad=1
scripts/man-aliases --check "$map" man/*.3 || bad=1

# expect WORDS COMMAND...: COMMAND fails, and prints WORDS
expect() {
    words=$1
    shift
    if "$@" >"$work/said" 2>&1 || ! grep -qF "$words" "$work/said"; then
        echo "expected '$words' of $*, got:"
        cat "$work/said"
        bad=1
    fi
}

cat >"$work/map" <<END
global:
    ddp_told;
    ddp_silent;
    ddp_fails;
    ddp_absent;
END
cat >"$work/some.h" <<END
/* some.h - three functions. */
void ddp_silent(void);

/* Do what can fail. */
int ddp_fails(void);

/* Do it.
 *
 * returns   0; DDP_EINVAL it was told not to */
int ddp_told(void);
END
expect "ddp_silent lacks a text" scripts/api-reference --check "$work/map" "$work/some.h"
expect "ddp_fails lacks what it returns when it fails" scripts/api-reference --check "$work/map" "$work/some.h"
expect "ddp_absent is exported, and in no header" scripts/api-reference --check "$work/map" "$work/some.h"
expect "ddp_told is in ddp/some.h, too" scripts/api-reference --check "$work/map" "$work/some.h" "$work/some.h"
expect "ddp_absent is in no manual page" scripts/man-aliases --check "$work/map" man/*.3
printf '/* some.h - text. */\nvoid ddp_told(\n' >"$work/cut.h"
expect "it does not end: void ddp_told(" scripts/api-reference --check "$work/map" "$work/cut.h"
exit $bad
