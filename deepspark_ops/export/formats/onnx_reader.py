"""Program without imports of DeepSpark: run a model.onnx in onnxruntime.

Argument: folder of the exchange (``names.json``, ``inputs.npz``, result ``answers.npz``). Standard input, JSON: file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def main() -> None:
    """Read, run, write."""
    folder = sys.argv[1]
    (file,) = json.loads(sys.stdin.readline())
    names = json.loads(Path(folder, "names.json").read_text(encoding="utf-8"))
    arrays = np.load(Path(folder, "inputs.npz"))
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    answers = session.run(names["outputs"], {name: arrays[f"arr_{at}"] for at, name in enumerate(names["inputs"])})
    np.savez(Path(folder, "answers.npz"), *answers)


if __name__ == "__main__":
    main()
