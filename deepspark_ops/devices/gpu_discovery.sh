#!/bin/sh
# Prints this host's GPUs as Spark's discovery scripts do: {"name": "gpu", "addresses": ["0", "1"]}
# For spark.worker.resource.gpu.discoveryScript (standalone workers) and spark.executor.resource.gpu.discoveryScript.
# CUDA_VISIBLE_DEVICES, where it is set, says which GPUs; else all that nvidia-smi lists.
if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    found=$(printf '%s' "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | tr -d ' ' | sed '/^-/,$d')
else
    found=$(nvidia-smi --query-gpu=index --format=csv,noheader) || {
        echo "gpu_discovery.sh: nvidia-smi failed on $(hostname): $found" >&2
        exit 1
    }
fi
listed=$(printf '%s\n' "$found" | sed -e '/^[[:space:]]*$/d' -e 's/^[[:space:]]*//' -e 's/[[:space:]]*$//' -e 's/.*/"&"/' |
    paste -s -d ',' -)
printf '{"name": "gpu", "addresses": [%s]}\n' "$listed"
