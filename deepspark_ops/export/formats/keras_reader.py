"""Program without imports of DeepSpark: load a model.keras and run the model.

Argument: folder of the exchange (``names.json``, ``inputs.npz``, result ``answers.npz``). Standard input, JSON: file.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import numpy as np


def main() -> None:
    """Read, run, write."""
    gc.disable()
    import keras

    gc.freeze()  # imported objects stay alive: collecting garbage among them takes as long as the import
    folder = sys.argv[1]
    (file,) = json.loads(sys.stdin.readline())
    names = json.loads(Path(folder, "names.json").read_text(encoding="utf-8"))
    arrays = np.load(Path(folder, "inputs.npz"))
    model = keras.saving.load_model(file, compile=False, safe_mode=True)
    answer = model.predict_on_batch({name: arrays[f"arr_{at}"] for at, name in enumerate(names["inputs"])})
    np.savez(Path(folder, "answers.npz"), *(answer[name] for name in names["outputs"]))


if __name__ == "__main__":
    main()
