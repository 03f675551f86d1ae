# shellcheck shell=bash
# lib.sh - what the scripts share. Sourced by them, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# The caller's locale may not exist here, and meson wants a UTF-8 one.
export LC_ALL=C.UTF-8

say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

die() {
    say "$*"
    exit 1
}

# Print the comment at the head of the calling script: it is the help text.
usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
}

# A folder that outlives the build: what is big and slow to make, the PyTorch of the interop suite.
# Without a home (a bare container, a service account) it lies in the clone.
cache_dir() {
    local base=${XDG_CACHE_HOME:-}
    if [[ $base != /* && ${HOME:-} == /* && -d $HOME ]]; then
        base=$HOME/.cache
    fi
    if [[ $base == /* ]] && mkdir -p "$base/ddprun" 2>/dev/null && [[ -w $base/ddprun ]]; then
        printf '%s\n' "$base/ddprun"
    else
        mkdir -p "$root/.cache/ddprun"
        printf '%s\n' "$root/.cache/ddprun"
    fi
}

# Where CUDA 13's libraries lie, if this machine has them: torch 2.11 then needs no copies of its own.
cuda_lib_dir() {
    local dir=/usr/local/cuda/lib64
    if [[ -e $dir/libcudart.so.13 ]]; then
        printf '%s\n' "$dir"
    fi
}

# configure_in FOLDER MESON-OPTIONS...: configure the folder, again or once more.
configure_in() {
    local dir=$root/$1
    shift
    if [[ -e $dir/build.ninja ]]; then
        meson configure "$dir" "$@"
    else
        rm -rf "$dir" # what an interrupted set-up left would be refused
        meson setup "$dir" "$root" "$@"
    fi
}

# build_in FOLDER MESON-OPTIONS...: configure the folder, and build all of it.
build_in() {
    configure_in "$@" && ninja -C "$root/$1" -j "$(nproc)"
}
