#!/usr/bin/env bash
# All ways to install ddprun, each in bare roots of Debian 12 and 13: a wheel in an empty venv, the Debian packages, `pip install .` into
# a venv, and `meson install` below a home directory. In each the programs start and run a job of 2 ranks, ddp-perf finds libddp, programs
# and libraries are hardened (tests/lint/hardening.py), the manual pages are there, and examples/hello.c is compiled and run: through
# pkg-config, or through `python -m ddp_torch` in a venv.
#
# usage: tests/packages.sh [RELEASE[:WAY]]...    (bookworm and trixie; WAY is wheel, debs, pip or meson)
#
# MIRROR in the environment is the URL of a Debian mirror. BASES is a directory with bare roots base-RELEASE, which are copied instead of
# made; tests/machines.py makes such. Root only; downloads some 1.5 GB; 30 minutes.

set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd -P)
mirror=${MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d "${TMPDIR:-/tmp}/ddprun-packages.XXXXXX")
trap 'umount -q "$work"/*/proc "$work"/*/dev || true; rm -rf --one-file-system "$work"' EXIT
programs=(ddprun ddpctl ddp-rendezvous ddp-perf)
pages=(man1/ddprun.1 man1/ddpctl.1 man1/ddp-perf.1 man8/ddp-rendezvous.8)

say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

fail() {
    say "$*"
    exit 1
}

# fresh NAME PACKAGE...: $dir is a bare root of $release with these packages, and none that they only recommend
fresh() {
    dir=$work/$release-$1
    shift
    if [[ ! -d $work/base-$release ]]; then
        if [[ -d ${BASES:-}/base-$release ]]; then
            cp -a "$BASES/base-$release" "$work/base-$release"
        else
            debootstrap --variant=minbase "$release" "$work/base-$release" "$mirror" >/dev/null
        fi
        cp /etc/resolv.conf /etc/hosts "$work/base-$release/etc"
        cp /etc/apt/apt.conf.d/99* "$work/base-$release/etc/apt/apt.conf.d" 2>/dev/null || true
    fi
    cp -a "$work/base-$release" "$dir"
    mount -t proc proc "$dir/proc"
    mount --bind /dev "$dir/dev"
    chroot "$dir" apt-get -qq update
    [[ $# -eq 0 ]] || install "$@"
}

install() {
    DEBIAN_FRONTEND=noninteractive quietly chroot "$dir" apt-get -qq -y --no-install-recommends install "$@"
}

# quietly COMMAND...: its output is shown if it fails
quietly() {
    "$@" >"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2; fail "failed: $*"; }
}

# inside COMMAND...: in the root, with the certificates that this machine trusts, which a proxy may need
inside() {
    cp /etc/ssl/certs/ca-certificates.crt "$dir/tmp/ca-of-host.crt"
    chroot "$dir" env PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 PIP_CERT=/tmp/ca-of-host.crt "$@"
}

# a_clone: what is committed, in the root
a_clone() {
    mkdir -p "$dir/src"
    git -C "$root" archive HEAD | tar -x -C "$dir/src"
}

# programs_run PREFIX [without-compiler]: those below it start, by their paths and without an environment that names libraries
programs_run() {
    local prefix=$1 name said
    for name in "${programs[@]}"; do
        [[ -e $dir$prefix/bin/$name ]] || continue
        said=$(inside "$prefix/bin/$name" --version) || fail "$release: $prefix/bin/$name does not start"
        [[ $said == "$name "* ]] || fail "expected the version of $name, got: $said"
    done
    # the two ranks' own words, and a ddprun that can be sent to other hosts
    # shellcheck disable=SC2016 # the ranks' shells know their ranks
    printf '%s\n' 'echo "rank $RANK of $WORLD_SIZE"' >"$dir/tmp/job.sh"
    said=$(inside "$prefix/bin/ddprun" -n 2 sh /tmp/job.sh | sort)
    [[ $said == $'rank 0 of 2\nrank 1 of 2' ]] || fail "expected two ranks, got: $said"
    if [[ ${2:-} == without-compiler ]]; then
        said=$(inside "$prefix/bin/ddprun" --bcast always --ssh-command /bin/true -H elsewhere --dry-run true)
        [[ $said == *', sent there' ]] || fail "expected a ddprun to send, got: $said"
        ! inside sh -c 'command -v cc gcc clang meson' >/dev/null || fail "there is a compiler in $dir: this shows nothing"
    fi
}

# programs_are_hardened PREFIX: all programs, libraries and plug-ins of ddprun there
programs_are_hardened() {
    local files=() file name
    while read -r -d '' file; do
        [[ $(head -c 4 "$file" | tr -d '\0') != $'\x7fELF' ]] || files+=("$file")
    done < <(find "$dir$1" -type f \( -name 'ddp*' -o -name 'libddp*' \) -print0)
    for name in "${programs[@]}"; do
        [[ "${files[*]} " == *"/$name "* ]] || fail "program $name is missing below $1"
    done
    [[ ${files[*]} == */libddp.so* ]] || fail "libddp.so is missing below $1"
    quietly python3 "$root/tests/lint/hardening.py" "${files[@]}"
}

# perf_runs PREFIX
perf_runs() {
    inside "$1/bin/ddp-perf" all_reduce --ranks 2 -b 8 -e 8 -n 2 -w 1 >/dev/null || fail "$1/bin/ddp-perf does not run"
}

# pages_exist PREFIX [PAGE...]
pages_exist() {
    local prefix=$1 page
    shift
    for page in "${@:-${pages[@]}}"; do
        [[ -n $(compgen -G "$dir$prefix/share/man/$page*") ]] || fail "there is no $prefix/share/man/$page"
    done
}

# c_program_runs PREFIX FLAGS...: with these flags for the compiler
c_program_runs() {
    local prefix=$1 said
    shift
    cp "$root/examples/hello.c" "$dir/tmp"
    inside cc -o /tmp/hello /tmp/hello.c "$@"
    said=$(inside "$prefix/bin/ddprun" -n 2 /tmp/hello | sort)
    [[ $said == $'rank 0 of 2: the sum of all ranks is 1\nrank 1 of 2: the sum of all ranks is 1' ]] ||
        fail "expected two sums, got: $said"
}

# venv_flags VENV: the flags that it prints for a compiler
venv_flags() {
    inside "$1/bin/python" -m ddp_torch --cflags --libs
}

try_wheel() {
    local flags
    [[ -d $work/wheels ]] || "$root/scripts/make-wheel" "$work/wheels"
    fresh wheel python3 python3-venv
    cp "$work"/wheels/*.whl "$dir/tmp"
    inside python3 -m venv /venv
    inside sh -c '/venv/bin/pip -q install --no-index /tmp/*.whl'
    programs_run /venv without-compiler
    programs_are_hardened /venv
    perf_runs /venv
    pages_exist /venv
    install gcc libc6-dev
    read -r -a flags < <(venv_flags /venv | tr '\n' ' ')
    c_program_runs /venv "${flags[@]}"
}

try_debs() {
    local debs flags
    fresh build build-essential
    a_clone
    DEBIAN_FRONTEND=noninteractive quietly chroot "$dir" apt-get -qq -y --no-install-recommends build-dep /src
    quietly inside sh -c 'cd /src && dpkg-buildpackage -us -uc -b'
    rm -f "$dir"/*dbgsym*
    fresh debs
    cp "$work/$release-build"/*.deb "$dir/tmp"
    # first what a machine has that only runs programs
    debs=("$dir"/tmp/ddprun_*.deb "$dir"/tmp/ddprun-etcd_*.deb "$dir"/tmp/ddprun-pmix_*.deb "$dir"/tmp/ddprun-trainjob_*.deb "$dir"/tmp/libddp0_*.deb "$dir"/tmp/python3-ddp-torch_*.deb)
    install "${debs[@]#"$dir"}"
    programs_run /usr without-compiler
    pages_exist /usr man1/ddprun.1 man1/ddpctl.1 man8/ddp-rendezvous.8
    debs=("$dir"/tmp/libddp-dev_*.deb)
    install "${debs[@]#"$dir"}" gcc libc6-dev pkg-config
    programs_run /usr
    programs_are_hardened /usr
    perf_runs /usr
    pages_exist /usr
    read -r -a flags < <(inside pkg-config --cflags --libs ddp)
    c_program_runs /usr "${flags[@]}"
}

try_pip() {
    local flags
    fresh pip python3-venv ca-certificates
    a_clone
    quietly inside /src/scripts/install-deps
    inside python3 -m venv /venv
    quietly inside /venv/bin/pip install /src
    programs_run /venv
    programs_are_hardened /venv
    perf_runs /venv
    pages_exist /venv
    read -r -a flags < <(venv_flags /venv | tr '\n' ' ')
    c_program_runs /venv "${flags[@]}"
}

try_meson() {
    local prefix=/root/x flags libraries
    fresh meson
    a_clone
    quietly inside /src/scripts/install-deps
    quietly inside meson setup /build /src "--prefix=$prefix" --buildtype=release -Dtests=false -Dbench=false
    quietly inside meson install -C /build
    programs_run "$prefix"
    programs_are_hardened "$prefix"
    perf_runs "$prefix"
    pages_exist "$prefix"
    libraries=$(chroot "$dir" find "$prefix" -name 'libddp.so' -printf '%h\n') # its place depends on what else is installed
    read -r -a flags < <(inside env "PKG_CONFIG_PATH=$libraries/pkgconfig" pkg-config --cflags --libs ddp)
    c_program_runs "$prefix" "${flags[@]}" "-Wl,-rpath,$libraries"
}

[[ $# -gt 0 ]] || set -- bookworm trixie
[[ $(id -u) -eq 0 ]] || fail "only root can make roots"
for arg; do
    release=${arg%%:*}
    ways=(wheel debs pip meson)
    [[ $arg != *:* ]] || ways=("${arg#*:}")
    for way in "${ways[@]}"; do
        case $way in
        wheel | debs | pip | meson) ;;
        *) fail "unknown way '$way': expected wheel, debs, pip or meson" ;;
        esac
        say "$release: $way"
        began=$SECONDS
        "try_$way"
        say "$release: $way: programs run, manual pages exist, a C program runs ($((SECONDS - began)) s)"
        umount "$dir/proc" "$dir/dev"
    done
done
