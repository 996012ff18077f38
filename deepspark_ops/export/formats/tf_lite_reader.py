"""Program without imports of DeepSpark: run a .tflite file in TensorFlow Lite's interpreter.

Argument: folder of the exchange (``names.json``, ``inputs.npz``, result ``answers.npz``). Standard input, JSON: file,
signature. With the JSON as a second argument the program imports all of TensorFlow.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

import numpy as np


def interpreter_class() -> Any:
    """Return the class of TensorFlow Lite's interpreter without the rest of TensorFlow.

    The package ``tensorflow`` imports everything, which takes two seconds; the interpreter needs a few of its modules.
    """
    spec = find_spec("tensorflow")
    if spec is not None:
        sys.modules["tensorflow"] = module_from_spec(spec)  # knows the folder of the modules, and imports none
    from tensorflow.lite.python.interpreter import Interpreter

    return Interpreter


def answer(folder: Path, request: str, interpreter: Any) -> None:
    """Read, run, write."""
    file, signature = json.loads(request)
    names = json.loads((folder / "names.json").read_text(encoding="utf-8"))
    arrays = np.load(folder / "inputs.npz")
    run = interpreter(model_path=file).get_signature_runner(signature)
    outputs = run(**{name: arrays[f"arr_{at}"] for at, name in enumerate(names["inputs"])})
    np.savez(folder / "answers.npz", *(outputs[name] for name in names["outputs"]))


def main() -> None:
    """Answer with a part of TensorFlow; where that fails, in any version of TensorFlow, with all of it."""
    warnings.simplefilter("ignore")  # TensorFlow will move the interpreter to another package
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        import tensorflow as tf

        answer(folder, sys.argv[2], tf.lite.Interpreter)
        return
    try:
        interpreter = interpreter_class()
    except Exception:  # noqa: BLE001 - another version of TensorFlow may need any other module
        interpreter = None
    request = sys.stdin.readline()
    try:
        answer(folder, request, interpreter)
    except Exception:  # noqa: BLE001 - likewise; the second try has the error of the model
        os.execv(sys.executable, [sys.executable, "-P", sys.argv[0], str(folder), request])  # noqa: S606


if __name__ == "__main__":
    main()
