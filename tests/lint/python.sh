#!/usr/bin/env bash
# ruff reports nothing about the Python sources; pyproject.toml has its rules and its version.
#   python.sh SOURCE_ROOT
set -eu
cd "$1"
. scripts/lib.sh
version=$(sed -n 's/^required-version = "==\(.*\)"/\1/p' pyproject.toml)
ruff=$(lint_tools_dir)/bin/ruff
[[ -x $ruff ]] || ruff=$(command -v ruff || :)
if [[ -z $ruff || $("$ruff" --version) != "ruff $version" ]]; then
    echo "ruff $version is missing: scripts/install-deps --lint installs it"
    exit 77
fi
mapfile -t scripts < <({ git ls-files 2>/dev/null || find . -type f -not -path './build*'; } | grep -E '(^|/)[^.]+$' |
    xargs -d '\n' awk 'FNR == 1 && /^#!.*python/ { print FILENAME } { nextfile }')
"$ruff" check --no-cache --output-format concise . "${scripts[@]}"
