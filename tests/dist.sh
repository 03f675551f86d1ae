#!/usr/bin/env bash
# The source tarball, made of a clean clone of what is committed, holds all that it takes to build, to pass tests and to be installed,
# and nothing of git is needed for that.
#
# usage: tests/dist.sh [TEST]...    (without any, some of all kinds; 5 minutes on 4 CPUs)

set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd -P)
export LC_ALL=C.UTF-8
if ! git -C "$root" rev-parse --verify --quiet HEAD >/dev/null; then
    echo "this is no clone"
    exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/ddprun-dist.XXXXXX")
trap 'rm -rf "$work"' EXIT
tests=("$@")
[[ $# -gt 0 ]] || tests=(common/buf rendezvous/membership/roster launcher/supervisor/supervisor worker-runtime/group/ddp_store
    worker-runtime/shm/collective system_exit_status system_docs system_samples reference shell)

say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

# quietly NAME COMMAND...: its output only if it fails
quietly() {
    local log=$work/$1.log
    shift
    "$@" >"$log" 2>&1 </dev/null || { tail -40 "$log" >&2; say "failed: $*"; exit 1; }
}

say "meson dist"
git clone --quiet "$root" "$work/clone"
quietly setup meson setup "$work/clone/build" "$work/clone"
quietly dist meson dist -C "$work/clone/build" --no-tests --formats gztar
tarballs=("$work"/clone/build/meson-dist/*.tar.gz)
(cd "${tarballs[0]%/*}" && sha256sum --quiet -c ./*.sha256sum)

say "building ${tarballs[0]##*/}"
tar -x -f "${tarballs[0]}" -C "$work"
rm -rf "$work/clone"
sources=("$work"/ddprun-*/)
build=${sources[0]}build
quietly configure meson setup --werror -Dprefix=/usr "$build" "${sources[0]}"
quietly build ninja -C "$build" -j "$(nproc)"

say "testing ${tests[*]}"
quietly tests meson test -C "$build" --no-rebuild --print-errorlogs "${tests[@]}"

say "installing"
quietly install env DESTDIR="$work/installed" meson install -C "$build" --no-rebuild
said=$("$work/installed/usr/bin/ddprun" -n 2 "$build/examples/hello" 2>&1)
[[ $said == *"rank 1 of 2"* ]] || { say "expected two ranks, got: $said"; exit 1; }
say "the tarball is whole"
