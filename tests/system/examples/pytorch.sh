#!/bin/sh
# PyTorch loads the checkpoint into the module of the classic tutorials, and it is the same network.
# Covers: examples, worker-runtime/files
. "$(dirname "$0")/common.sh"

python=${TORCH_PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/ddprun/torch/bin/python}
LD_LIBRARY_PATH=/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
"$python" -c 'import torch' 2>/dev/null || { echo "skipped: $python has no torch" && exit 77; }

for model in batch none; do
    start 2 "$mnist" --data "$work/data" --draw 2000 --norm $model --epochs 2 \
        --checkpoint "$work/net" >"$work/out"
    check "training with --norm $model" $?
    "$python" "$(dirname "$0")/evaluate.py" "$work/net" "$work/data" >"$work/accuracy"
    check "PyTorch loads the checkpoint" $?
    # 400 images: one of them, 25 hundredths, may lie on the edge, where rounding decides.
    d=$(($(cat "$work/accuracy") - $(last_accuracy "$work/out")))
    [ ${d#-} -le 25 ]
    check "PyTorch counts the same accuracy ($(cat "$work/accuracy") hundredths)" $?
done
finish
