#!/bin/sh
# mandoc has nothing to say about the manual pages. (Where other pages are installed is not their concern, and long lines change
# nothing that is shown.)
#   manuals.sh SOURCE_ROOT
set -eu
cd "$1"
if ! command -v mandoc >/dev/null; then
    echo "mandoc is missing"
    exit 77
fi
# what it says of its own database of pages goes to stderr
said=$(mandoc -Tlint man/*.[1378] 2>/dev/null | grep -vE 'referenced manual not found|longer than 80 bytes' || :)
if [ -n "$said" ]; then
    echo "$said"
    exit 1
fi
