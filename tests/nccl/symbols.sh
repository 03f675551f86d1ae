#!/bin/sh
# The plug-in calls what worker-runtime/nccl/symbols.txt lists, and nothing else of NCCL and CUDA; the libraries have it all; it has
# the kernels that it asks for, for each generation of GPUs; it exports one name, and no machine's path is in it.
#   symbols.sh SOURCE_ROOT PLUGIN CUDA_LIB_DIR
set -eu
list=$1/worker-runtime/nccl/symbols.txt
newer=$1/worker-runtime/nccl/device.h
plugin=$2
lib_dir=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

fail() {
    echo "$1"
    bad=1
}
same() { # WHAT: are the two lists the same?
    if ! diff "$work/want" "$work/have" >"$work/diff"; then
        fail "$1 (< in worker-runtime/nccl/symbols.txt, > in it):"
        cat "$work/diff"
    fi
}

sed -n 's/^linked //p' "$list" | sort >"$work/want"
nm -D --undefined-only "$plugin" | sed -n 's/^ *U \(nccl[A-Z][A-Za-z]*\|cuda[A-Z][A-Za-z]*\)\(@.*\)*$/\1/p' |
    sort >"$work/have"
[ -s "$work/want" ] || fail "$list names nothing"
same "$plugin calls something else"

sed -n 's/^\(newer\|later\) //p' "$list" | sort >"$work/want"
sed -n 's/^ *X(\(nccl[A-Za-z]*\)).*/\1/p' "$newer" | sort >"$work/have"
same "$newer looks up something else"

nm -D --defined-only "$lib_dir/libnccl.so.2" "$lib_dir"/libcudart.so.1? | sed -n 's/.* [TW] \([^@ ]*\).*/\1/p' |
    sort >"$work/there"
grep -v '^later ' "$list" | sed -n 's/^[a-z]* \([a-zA-Z]*\)$/\1/p' | sort | while read -r name; do
    grep -qx "$name" "$work/there" || echo "$name"
done >"$work/missing"
[ ! -s "$work/missing" ] || { fail "the libraries in $lib_dir lack:"; cat "$work/missing"; }

# PTX is text: what can be asked for by name
sed -n 's/^ *X([A-Z_]*, \(ddp_[a-z_]*\)).*/\1/p' "$1/worker-runtime/nccl/kernels.h" | sort >"$work/want"
grep -ao '\.entry ddp_[a-z_]*(' "$plugin" | sed 's/\.entry \(.*\)(/\1/' | sort -u >"$work/have"
[ -s "$work/want" ] || fail "worker-runtime/nccl/kernels.h names no kernels"
diff "$work/want" "$work/have" || fail "worker-runtime/nccl/kernels.h asks for other kernels than there are"
for arch in sm_80 sm_90 sm_100; do
    grep -aq -e "-arch $arch" "$plugin" || fail "it has no code for $arch"
done

names=$(nm -D --defined-only "$plugin" | sed -n 's/.* [A-Z] //p')
[ "$names" = ddp_device_plugin ] || fail "it exports $names"
readelf -d "$plugin" | grep -E 'RPATH|RUNPATH' && fail "it holds a path of this machine"
readelf -d "$plugin" | grep -q 'NEEDED.*libnccl.so.2' || fail "it is not linked against libnccl.so.2"
readelf -d "$plugin" | grep -q 'NEEDED.*libcuda.so' && fail "it cannot be loaded where there is no driver"
exit $bad
