#!/bin/sh
# Spacing is clang-format's, lines end by column 100, texts are clean.
#   format.sh SOURCE_ROOT
set -eu
cd "$1"
bad=0
files=$(git ls-files '*.c' '*.h' 2>/dev/null || find . -name '*.[ch]' -not -path './build*')
long=$(echo "$files" | xargs awk '
    FNR == 1 { quoted = 0 }
    /clang-format o(ff|n)/ { quoted = /off/ }
    length > 100 && !quoted { print FILENAME ":" FNR ": longer than 100 columns" }')
if [ -n "$long" ]; then
    echo "$long"
    bad=1
fi
if git grep -nIE '[[:blank:]]+$' -- '*.c' '*.h' '*.sh' '*.py' '*.build' '*.1' '*.3' 2>/dev/null; then
    echo "blanks at the end of these lines"
    bad=1
fi
if command -v clang-format-14 >/dev/null; then
    echo "$files" | xargs clang-format-14 --dry-run --Werror || bad=1
elif [ $bad = 0 ]; then
    echo "clang-format-14 is missing: spacing not looked at"
    exit 77
fi
exit $bad
