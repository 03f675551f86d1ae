#!/usr/bin/env bash
# The packages on machines that have nothing: a wheel in an empty venv and the Debian packages, each in a fresh Debian 12 of its own,
# without compilers, run a job of 2 ranks. The Debian packages are built in a third, with what they say they need and nothing else.
#
# usage: tests/packages.sh    (root; downloads some 500 MB; 5 minutes)

set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd -P)
work=$(mktemp -d /tmp/ddprun-packages.XXXXXX)
trap 'umount -q "$work"/*/proc || true; rm -rf "$work"' EXIT

say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

# fresh NAME PACKAGE...: a root folder with these packages, and none that they only recommend
fresh() {
    local dir=$work/$1
    shift
    cp -a "$work/base" "$dir"
    mount -t proc proc "$dir/proc"
    chroot "$dir" apt-get -qq update
    [[ $# -eq 0 ]] || install "$dir" "$@"
}

install() {
    local dir=$1
    shift
    DEBIAN_FRONTEND=noninteractive chroot "$dir" apt-get -qq -y --no-install-recommends install "$@" >/dev/null
}

# job DIR COMMAND: what is said by COMMAND in DIR has to be the two ranks' own words, and it can send a ddprun to other hosts
job() {
    local said
    # shellcheck disable=SC2016 # the ranks' shells know their ranks
    printf '%s\n' 'echo "rank $RANK of $WORLD_SIZE"' >"$1/tmp/job.sh"
    said=$(chroot "$1" "$2" -n 2 sh /tmp/job.sh | sort)
    if [[ $said != $'rank 0 of 2\nrank 1 of 2' ]]; then
        say "expected two ranks, got: $said"
        exit 1
    fi
    said=$(chroot "$1" "$2" --bcast always --ssh-command /bin/true -H elsewhere --dry-run true)
    if [[ $said != *', sent there' ]]; then
        say "expected a ddprun to send, got: $said"
        exit 1
    fi
    if chroot "$1" sh -c 'command -v cc gcc clang meson' >/dev/null; then
        say "there is a compiler in $1: this shows nothing"
        exit 1
    fi
}

say "making a fresh Debian 12"
debootstrap --variant=minbase bookworm "$work/base" >/dev/null

say "the wheel"
"$root/scripts/make-wheel" "$work/wheels"
fresh venv python3 python3-venv
cp "$work"/wheels/*.whl "$work/venv/tmp"
chroot "$work/venv" python3 -m venv /venv
chroot "$work/venv" sh -c '/venv/bin/pip -q install --no-index /tmp/*.whl'
job "$work/venv" /venv/bin/ddprun
chroot "$work/venv" /venv/bin/ddp-perf all_reduce --ranks 2 -b 8 -e 8 -n 2 -w 1 >/dev/null
for word in $(chroot "$work/venv" /venv/bin/python -m ddp_torch --cflags --libs); do
    path=${word#-I}
    [[ $path == -* || -e $work/venv$path ]] || { say "there is no $path"; exit 1; }
done

say "the Debian packages"
fresh build build-essential
mkdir "$work/build/src"
git -C "$root" archive HEAD | tar -x -C "$work/build/src"
DEBIAN_FRONTEND=noninteractive chroot "$work/build" apt-get -qq -y --no-install-recommends build-dep /src >/dev/null
chroot "$work/build" sh -c 'cd /src && dpkg-buildpackage -us -uc -b' >"$work/build.log" 2>&1 || { tail -20 "$work/build.log" >&2; exit 1; }
fresh debs
cp "$work"/build/*.deb "$work/debs/tmp"
rm -f "$work"/debs/tmp/*dbgsym* "$work"/debs/tmp/*-dev_* # whoever only runs programs
debs=("$work"/debs/tmp/*.deb)
install "$work/debs" "${debs[@]#"$work/debs"}"
job "$work/debs" /usr/bin/ddprun
say "the wheel and the Debian packages run"
