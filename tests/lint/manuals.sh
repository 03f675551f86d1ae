#!/bin/sh
# mandoc has nothing to say about the manual pages. (Where other pages are installed is not their concern.)
#   manuals.sh SOURCE_ROOT
set -eu
cd "$1"
if ! command -v mandoc >/dev/null; then
    echo "mandoc is missing"
    exit 77
fi
# what it says of its own database of pages goes to stderr
said=$(mandoc -Tlint man/*.[1378] 2>/dev/null | grep -v 'referenced manual not found' || :)
if [ -n "$said" ]; then
    echo "$said"
    exit 1
fi
