"""Program without imports of DeepSpark: run Caffe's two files in OpenCV.

Argument: folder of the exchange (``names.json``, ``inputs.npz``, result ``answers.npz``). Standard input, JSON:
prototxt, caffemodel, samples of a pass. The inputs hold whole passes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import cv2
import numpy as np


def main() -> None:
    """Read, run, write."""
    folder = sys.argv[1]
    prototxt, caffemodel, batch_size = json.loads(sys.stdin.readline())
    step = int(batch_size)
    names = json.loads(Path(folder, "names.json").read_text(encoding="utf-8"))
    arrays = np.load(Path(folder, "inputs.npz"))
    inputs = {name: arrays[f"arr_{at}"] for at, name in enumerate(names["inputs"])}
    net = cv2.dnn.readNetFromCaffe(prototxt, caffemodel)
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    net.enableWinograd(False)  # Winograd is faster and less exact
    rows = []
    for row in range(0, len(next(iter(inputs.values()))), step):
        for name, values in inputs.items():
            net.setInput(values[row : row + step], name)
        rows.append([answer.copy() for answer in net.forward(names["outputs"])])
    np.savez(Path(folder, "answers.npz"), *(np.concatenate(answers) for answers in zip(*rows, strict=True)))


if __name__ == "__main__":
    main()
