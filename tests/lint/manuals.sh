#!/bin/sh
# mandoc reports nothing about the manual pages, each names this version, and no list shares one pair of quotes. (Pages that are
# installed elsewhere, long lines, and a system in .Os, which mandoc discourages for pages of BSD itself, do not matter.)
#   manuals.sh SOURCE_ROOT
set -eu
cd "$1"
bad=0
version=$(sed -n "s/.*version : '\([0-9.]*\)'.*/\1/p" meson.build | head -1)
for page in man/*.[1378]; do
    if ! grep -qx "\.Os ddprun $version" "$page"; then
        echo "$page: .Os does not name ddprun $version"
        bad=1
    fi
done
# ".Ql a , b" prints one pair of quotes around both words
if grep -nE '^\.(It |Pq )?Ql [^ ]+ , [^Q]' man/*.[1378]; then
    echo "a list in one pair of quotes: give each word a .Ql line of its own"
    bad=1
fi
[ $bad -eq 0 ] || exit 1
if ! command -v mandoc >/dev/null; then
    echo "mandoc is missing"
    exit 77
fi
# its messages about its own database of pages go to stderr
said=$(mandoc -Tlint man/*.[1378] 2>/dev/null |
    grep -vE 'referenced manual not found|longer than 80 bytes|operating system explicitly specified' || :)
if [ -n "$said" ]; then
    echo "$said"
    exit 1
fi
