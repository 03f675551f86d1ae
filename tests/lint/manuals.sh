#!/bin/sh
# mandoc has nothing to say about the manual pages. (Where other pages are installed is not their concern.)
#   manuals.sh SOURCE_ROOT
set -eu
cd "$1"
if ! command -v mandoc >/dev/null; then
    echo "mandoc is missing"
    exit 77
fi
said=$(mandoc -Tlint -Wwarning man/*.[1378] || :)
if [ -n "$said" ]; then
    echo "$said"
    exit 1
fi
