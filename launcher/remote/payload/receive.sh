#!/bin/sh
# What a host executes instead of ddprun when one may be sent to it (payload.h): it becomes a compatible ddprun, an
# installed one, one that was sent earlier, or one that is sent now.
#
#   sh -c ALL_THIS ddprun PROGRAM TERMS NAME SIZE DIGEST
#
# PROGRAM   path of ddprun on the launching host; "": installed ones are ignored
# TERMS     what a compatible ddprun answers to --launch-terms
# NAME      of the directory for the one that is sent; another program has another name
# SIZE      of the one that is sent, in bytes; DIGEST its SHA-256; "": none can be sent, PROGRAM is executed
#
# A ddprun that another user can replace is not executed: it gets the token and the environment of the job. A warning
# on standard error gives the reason; the launching host prints it.
#
# The request is a line of launch_wire.h on standard output; the program arrives on standard input, and nothing follows
# it before it has answered. If this fails, the last line on standard error has the reason.
#
# pack.py makes one line of this for '...' on ssh's command line, for login shells of every kind, including csh: so the
# script has no single quote, no backslash and no exclamation mark, and every command ends with a semicolon.

suits() {
    [ "$("$1" --launch-terms </dev/null 2>/dev/null)" = "$terms" ];
};

is_whole() {
    [ "$(sha256sum <"$1")" = "$digest  -" ];
};

# Not by a #: on a file system without execution this one cannot be started; elsewhere the shell reads it.
may_execute() {
    echo : >"$1" && chmod 700 "$1" && "$1" </dev/null;
};

drop() {
    rm -f "$new";
};

# Not a link, and not writable for other users. One look, so that it cannot be changed in between.
is_ours() {
    # shellcheck disable=SC2046 # its words are wanted
    set -- $(ls -ldn "$1" 2>/dev/null);
    case $1 in d????-??-*) [ "$3" = "$(id -u)" ];; *) false;; esac;
};

# The file and each directory above it belong to root or to this user, and other users cannot write to them, except to
# a directory like /tmp. Sets $at, its path without links: that is executed.
is_safe() {
    at=$(readlink -f "$1") || at=$1;
    part=$at;
    while :; do
        # shellcheck disable=SC2046 # its words are wanted
        set -- $(ls -ldn "${part:-/}" 2>/dev/null);
        case $1 in d????????[tT]*|?????-??-*) ;; *) why="other users can write to ${part:-/}"; return 1;; esac;
        case $3 in 0|"$(id -u)") ;; *) why="${part:-/} belongs to user $3"; return 1;; esac;
        [ -n "$part" ] || return 0;
        part=${part%/*};
    done;
};

may_run() {
    [ -x "$1" ] || return 1;
    is_safe "$1" && return 0;
    echo "ddprun: warning: $1 is not executed: $why" >&2;
    return 1;
};

# Another start may have been faster, on another host if the directory is shared: its program runs there, and must not
# be removed.
keep() {
    if ln "$new" "$file" 2>/dev/null || { [ -f "$file" ] && is_whole "$file"; }; then drop; else mv -f "$new" "$file"; fi;
};

# The umask is for our files; ranks have the login shell's.
become() {
    umask "$mask";
    exec "$1" --launch-channel;
};

give_up() {
    echo "ddprun: error: $1" >&2;
    exit 1;
};

program=$1 terms=$2 name=$3 size=$4 digest=$5 tried="" new="" why="" at="" part="" mask=$(umask);
if [ -z "$name" ]; then
    [ -x "$program" ] || give_up "cannot execute $program: it does not exist, or permission is denied";
    if is_safe "$program"; then become "$at"; fi;
    give_up "$program is not executed: $why";
fi;
[ -z "$program" ] || for file in "$program" "$(command -v ddprun)"; do
    if may_run "$file" && suits "$at"; then become "$at"; fi;
done;
for tool in sha256sum head mktemp; do
    command -v $tool >/dev/null || give_up "ddprun of this version is not installed, and cannot be copied without $tool; install one of them on this host";
done;
umask 077;
# The last one is in a directory shared with other users.
for dir in "${XDG_CACHE_HOME:-${HOME:-/dev/null}/.cache}/ddprun" "${XDG_RUNTIME_DIR:-/dev/null}/ddprun-sent" "${TMPDIR:-/tmp}/ddprun-$(id -u)"; do
    tried="$tried $dir";
    mkdir -p "$dir" 2>/dev/null || continue;
    is_ours "$dir" || continue;
    mkdir -p "$dir/$name" 2>/dev/null || continue;
    file=$dir/$name/ddprun;
    # One that removes old ones (payload_cache_tidy()) leaves it from now on: it is not started yet, and holds no lock.
    touch -c "$file" 2>/dev/null;
    if [ -f "$file" ] && is_whole "$file" && suits "$file"; then become "$file"; fi;
    new=$(mktemp "$dir/$name/XXXXXX" 2>/dev/null) || continue;
    trap "drop; exit 1" HUP INT PIPE TERM;
    if may_execute "$new" 2>/dev/null; then
        echo "ddprun-launch wants $(uname -m)";
        head -c "$size" >"$new" && is_whole "$new" && keep && become "$file";
        drop;
        give_up "the copy of ddprun in $file is incomplete; check the disk space of this host";
    fi;
    drop;
done;
give_up "${why:+the installed ddprun is not executed: $why; }ddprun of this version is not installed, and no directory can be written to and executed from:$tried; install ddprun on this host, or set TMPDIR there";
