# shellcheck shell=bash
# lib.sh - common functions of the scripts, which source it.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# The caller's locale may not exist on this machine, and meson needs a UTF-8 locale.
export LC_ALL=C.UTF-8

# A compilation that ccache does not know would be preprocessed twice: for ccache, and by the compiler.
export CCACHE_DEPEND=${CCACHE_DEPEND-1}

say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

die() {
    say "$*"
    exit 1
}

# Print the comment at the head of the calling script, which is its help text.
usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
}

# A directory that outlives the build, for what is large and slow to make, such as the PyTorch of the interop suite.
# Without a home directory (a bare container, a service account) it is in the clone.
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

# The directory where scripts/install-deps puts meson and ninja from PyPI if the distribution's are missing or too old.
build_tools_dir() {
    printf '%s/build-tools\n' "$(cache_dir)"
}

# Put that directory first on PATH if it has them: now, and again after scripts/install-deps.
use_build_tools() {
    local bin
    bin=$(build_tools_dir 2>/dev/null)/bin # without error messages: a clone may be read-only
    [[ ! -x $bin/meson || :$PATH: == *:$bin:* ]] || PATH=$bin:$PATH
}
use_build_tools

# Put the distribution's python3, which scripts/packages.txt requires, first on PATH. That of a version manager is a shell script that
# looks for the interpreter each time, which takes longer than a short test.
use_system_python() {
    local bin
    [[ -x /usr/bin/python3 && $(command -v python3) != /usr/bin/python3 ]] || return 0
    bin=$(cache_dir)/python
    if mkdir -p "$bin" 2>/dev/null && ln -sfn /usr/bin/python3 "$bin/python3"; then
        PATH=$bin:$PATH
    fi
}

# The directory where scripts/install-deps puts the linters from PyPI.
lint_tools_dir() {
    printf '%s/lint\n' "$(cache_dir)"
}

# The Python with the newest PyTorch that is tested, of scripts/install-deps --interop.
torch_python() {
    printf '%s/torch/bin/python\n' "$(cache_dir)"
}

# The directory of CUDA 13's libraries, if this machine has them: torch then does not need its own copies.
cuda_lib_dir() {
    local dir=/usr/local/cuda/lib64
    if [[ -e $dir/libcudart.so.13 ]]; then
        printf '%s\n' "$dir"
    fi
}

# configure_in DIRECTORY MESON-OPTIONS...: configure the directory, for the first time or again. --cross-file=FILE comes first.
configure_in() {
    local dir=$root/$1
    shift
    if [[ -e $dir/build.ninja ]]; then
        [[ $1 != --cross-file=* ]] || shift # of the first time; meson accepts it only then
        meson configure "$dir" "$@"
    else
        rm -rf "$dir/meson-private" "$dir/meson-info" # meson rejects the remains of an interrupted setup
        meson setup "$dir" "$root" "$@"
    fi
}

# build_in DIRECTORY MESON-OPTIONS...: configure the directory and build everything in it.
build_in() {
    configure_in "$@" && ninja -C "$root/$1" -j "$(nproc)"
}

# logged LOG WHAT COMMAND...: run the command with its output in the file LOG. A terminal shows the progress that ninja
# reports, on one line; a failure shows the end of LOG and ends the script.
logged() {
    local log=$1 what=$2 rc=0
    shift 2
    mkdir -p "$(dirname "$log")"
    say "$what"
    if [[ -t 2 ]]; then
        "$@" </dev/null 2>&1 | tee -a "$log" | show_progress || rc=${PIPESTATUS[0]}
    else
        "$@" </dev/null >>"$log" 2>&1 || rc=$?
    fi
    if [[ $rc -ne 0 ]]; then
        tail -n 30 "$log" >&2
        die "$what failed with exit status $rc; the whole log is $log"
    fi
}

# Read a log and show each "[12/345]" in it, overwriting the previous one.
show_progress() {
    local line step width=0
    while IFS= read -r line; do
        if [[ $line =~ ^\[[0-9]+/[0-9]+\] ]]; then
            step=${BASH_REMATCH[0]}
            width=${#step}
            printf '\r%s' "$step" >&2
        fi
    done
    printf '\r%*s\r' "$width" '' >&2
}
