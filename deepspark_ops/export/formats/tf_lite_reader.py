"""Program without imports of DeepSpark: run a .tflite file in TensorFlow Lite's interpreter.

Argument: folder of the exchange (``names.json``, ``inputs.npz``, result ``answers.npz``). Standard input, JSON: file,
signature.
"""

from __future__ import annotations

import gc
import json
import sys
import warnings
from pathlib import Path

import numpy as np


def main() -> None:
    """Read, run, write."""
    gc.disable()
    import tensorflow as tf

    gc.freeze()  # imported objects stay alive: collecting garbage among them takes as long as the import
    folder = sys.argv[1]
    file, signature = json.loads(sys.stdin.readline())
    names = json.loads(Path(folder, "names.json").read_text(encoding="utf-8"))
    arrays = np.load(Path(folder, "inputs.npz"))
    warnings.simplefilter("ignore")  # TensorFlow will move the interpreter to another package
    run = tf.lite.Interpreter(model_path=file).get_signature_runner(signature)
    answer = run(**{name: arrays[f"arr_{at}"] for at, name in enumerate(names["inputs"])})
    np.savez(Path(folder, "answers.npz"), *(answer[name] for name in names["outputs"]))


if __name__ == "__main__":
    main()
