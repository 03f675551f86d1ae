#!/bin/sh
# gpu_plugin.sh LIBDDP HELLO - a program whose libddp-nccl.so is missing or invalid prints what is wrong.
# Covers: worker-runtime/device
set -u
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cp -L "$1" "$work/libddp.so.0" || exit 99
unset RANK WORLD_SIZE

# prints TEXT: with DDP_BACKEND=nccl the program exits with 1, and prints TEXT
prints() {
    LD_LIBRARY_PATH=$work DDP_BACKEND=nccl "$hello" >"$work/out" 2>&1
    status=$?
    cat "$work/out"
    [ "$status" -eq 1 ] || { echo "FAILED: exit status $status" && exit 1; }
    grep -q -F -e "$1" "$work/out" || { echo "FAILED: it does not say '$1'" && exit 1; }
}

hello=$2
if ldconfig -p | grep -q libddp-nccl; then
    echo "one is installed here, so none can be missing"
else
    prints "build it with -Dnccl=enabled and install it next to libddp.so"
fi
echo "this is no library" >"$work/libddp-nccl.so"
prints "$work/libddp-nccl.so: file too short"
prints "set LD_LIBRARY_PATH to the directories of libnccl and libcudart"
