#!/bin/sh
# What cannot work ends at once, with one message that names the thing.
# Covers: examples
. "$(dirname "$0")/common.sh"

# refuses WHAT TEXT N ARG...: the training on N ranks fails, and prints TEXT once.
refuses() {
    what=$1 text=$2 ranks=$3
    shift 3
    start "$ranks" "$mnist" "$@" >"$work/out" 2>"$work/err"
    status=$?
    [ $status -eq 1 ] && [ "$(grep -cF -e "$text" "$work/err")" -ge 1 ] &&
        [ "$(grep -cF "mnist: " "$work/err")" -eq "$(grep -cF -e "$text" "$work/err")" ]
    ok=$?
    check "$what ($ranks ranks)" $ok
    [ $ok -eq 0 ] || { echo "status $status" && cat "$work/out" "$work/err"; }
}

# A good data set to spoil.
start alone "$mnist" --data "$work/data" --draw 200 --batch 20 --steps 1 >/dev/null
check "drawing a data set" $?

for n in alone 2; do
    : >"$work/file"
    refuses "a data directory below a file" "cannot create the data directory '$work/file/data'" $n \
        --data "$work/file/data"
    refuses "a data directory that is none" "cannot write '/dev/null/train-images-idx3-ubyte'" $n \
        --data /dev/null

    rm -rf "$work/bad" && cp -r "$work/data" "$work/bad"
    head -c 50000 "$work/data/train-images-idx3-ubyte" >"$work/bad/train-images-idx3-ubyte"
    refuses "truncated images" \
        "'$work/bad/train-images-idx3-ubyte': truncated: 49984 of 156800 bytes of data" $n --data "$work/bad"
    gzip -c "$work/data/train-images-idx3-ubyte" | head -c 9000 >"$work/bad/train-images-idx3-ubyte.gz"
    rm "$work/bad/train-images-idx3-ubyte"
    refuses "truncated compressed images" \
        "'$work/bad/train-images-idx3-ubyte.gz': truncated: the compressed data ends early" $n --data "$work/bad"
    cp "$work/data/train-labels-idx1-ubyte" "$work/bad/train-images-idx3-ubyte"
    refuses "labels in place of images" \
        "'$work/bad/train-images-idx3-ubyte': 1 dimensions, expected 3" $n --data "$work/bad"
    cp "$work/data/train-images-idx3-ubyte" "$work/bad/train-images-idx3-ubyte"
    cp "$work/data/t10k-labels-idx1-ubyte" "$work/bad/train-labels-idx1-ubyte"
    refuses "too few labels" "has 200 images, but '$work/bad/train-labels-idx1-ubyte' has 40 labels" $n \
        --data "$work/bad"
    rm "$work/bad/t10k-labels-idx1-ubyte"
    refuses "a part of a data set" "but not t10k-labels-idx1-ubyte[.gz]" $n --data "$work/bad"

    refuses "a loss file in no directory" "cannot write the loss file '$work/none/loss'" $n \
        --data "$work/data" --loss-file "$work/none/loss"
    refuses "a checkpoint in no directory" "cannot write '$work/none/net'" $n --data "$work/data" \
        --batch 20 --steps 1 --checkpoint "$work/none/net"
done
refuses "a batch that cannot be split" "--batch 10 is not divisible by 4 ranks" 4 \
    --data "$work/data" --batch 10

"$mnist" --bogus >"$work/out" 2>"$work/err"
[ $? -eq 2 ] && grep -qF "unknown option '--bogus'" "$work/err"
check "an unknown option is a usage error" $?
"$mnist" --help | grep -q -- '--loss-file'
check "--help lists the options" $?
finish
