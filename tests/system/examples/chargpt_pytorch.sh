#!/bin/sh
# PyTorch loads chargpt's checkpoint, and its network foretells the held-out text as well.
# Covers: examples, worker-runtime/files
. "$(dirname "$0")/common.sh"

python=${TORCH_PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/ddprun/torch/bin/python}
LD_LIBRARY_PATH=/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
"$python" -c 'import torch, safetensors' 2>/dev/null || { echo "skipped: $python has no torch with safetensors" && exit 77; }

cat "$(dirname "$0")"/*.sh >"$work/text"
head -c 11000 /usr/share/common-licenses/Apache-2.0 >>"$work/text"
start 2 "$chargpt" --layers 2 --width 32 --heads 4 --context 48 --batch 12 --steps 60 \
    --checkpoint "$work/saved" "$work/text" >"$work/out"
check "training" $?
theirs=$("$python" "$(dirname "$0")/../../interop/chargpt_torch.py" "$work"/saved/*.safetensors "$work/text" 4)
check "PyTorch reads the checkpoint" $?
ours=$(sed -n 's/.*held-out text \([0-9.]*\) nats.*/\1/p' "$work/out" | tail -n 1)
awk -v a="$ours" -v b="$theirs" 'BEGIN { d = a - b; exit !(a > 1 && b > 1 && d < 0.001 && d > -0.001) }'
check "it foretells as well: $theirs nats, ours $ours" $?
finish
