"""Commands that serve a bundle by TensorFlow Serving, the server for production."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from deepspark_ops.export.manifest import SAVED_MODEL_NAME


def serving_name(net: str) -> str:
    """Return a net's name in the form of addresses.

    Example:
        >>> serving_name("CIFAR10 quick/full"), serving_name("")
        ('CIFAR10_quick_full', 'model')
    """
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", net).strip("_.") or "model"


def serving_commands(bundle: Path, net: str) -> dict[str, str]:
    """Return command lines that serve a bundle by TensorFlow Serving, with Docker and with the program.

    TensorFlow Serving serves a folder of numbered versions, so the SavedModel becomes version 1. The server takes the
    same JSON at ``:8501/v1/models/NAME:predict``, with images as arrays only.
    """
    name = serving_name(net)
    model = (bundle / SAVED_MODEL_NAME).absolute()
    mount = shlex.quote(f"{model}:/models/{name}/1:ro")
    folder = Path("serving", name)
    return {
        "docker": f"docker run --rm -p 127.0.0.1:8501:8501 -v {mount} -e MODEL_NAME={name} tensorflow/serving",
        "program": f"mkdir -p {folder} && cp -r {shlex.quote(str(model))} {folder}/1 && tensorflow_model_server"
        f' --rest_api_port=8501 --model_name={name} --model_base_path="$PWD/{folder}"',
    }
