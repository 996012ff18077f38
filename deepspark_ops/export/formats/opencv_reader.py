"""A program of its own, without anything of ours: run Caffe's two files in OpenCV.

Arguments: folder of the exchange (``names.json``, ``inputs.npz``, result ``scores.npy``), prototxt, caffemodel, blob.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import cv2
import numpy as np


def main() -> None:
    """Read, run, write."""
    folder, prototxt, caffemodel, blob = sys.argv[1:]
    names = json.loads(Path(folder, "names.json").read_text(encoding="utf-8"))
    arrays = np.load(Path(folder, "inputs.npz"))
    inputs = {name: arrays[f"arr_{at}"] for at, name in enumerate(names)}
    net = cv2.dnn.readNetFromCaffe(prototxt, caffemodel)
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    net.enableWinograd(False)  # it is quicker and less exact
    scores = []
    for row in range(len(next(iter(inputs.values())))):
        for name, values in inputs.items():
            net.setInput(values[row : row + 1], name)
        scores.append(net.forward(blob).copy().ravel())
    np.save(Path(folder, "scores.npy"), np.stack(scores).astype(np.float32))


if __name__ == "__main__":
    main()
