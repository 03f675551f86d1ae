#!/bin/sh
# ShellCheck has no findings in the shell scripts.
#   shell.sh SOURCE_ROOT
set -eu
cd "$1"
if ! command -v shellcheck >/dev/null; then
    echo "shellcheck is missing"
    exit 77
fi
first_lines='FNR == 1 { if (/^#!.*(\/| )(sh|bash)$/) print FILENAME; nextfile }'
scripts=$(git ls-files -z 2>/dev/null | xargs -0 awk "$first_lines")
[ -n "$scripts" ] || scripts=$(find . -name 'build*' -prune -o -type f -exec awk "$first_lines" {} +)
# scripts source files of their own directory
echo "$scripts" | xargs shellcheck --severity=warning --external-sources --source-path=SCRIPTDIR
