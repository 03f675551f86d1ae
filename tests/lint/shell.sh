#!/bin/sh
# ShellCheck has no findings in the shell scripts.
#   shell.sh SOURCE_ROOT
set -eu
cd "$1"
if ! command -v shellcheck >/dev/null; then
    echo "shellcheck is missing"
    exit 77
fi
scripts=$(git ls-files -z 2>/dev/null | xargs -0 grep -lE '^#!.*(/| )(sh|bash)$' ||
    grep -rlE '^#!.*(/| )(sh|bash)$' --exclude-dir='build*' .)
# scripts source files of their own directory
echo "$scripts" | xargs shellcheck --severity=warning --external-sources --source-path=SCRIPTDIR
