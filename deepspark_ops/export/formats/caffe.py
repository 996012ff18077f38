"""``deploy.prototxt`` and ``weights.caffemodel`` for Caffe. Read again here, and by OpenCV if it knows the layers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.prototxt import format_message, read_net
from caffe_import.tf_graph.predict import compile_forward
from deepspark_ops.evaluate.trained_net import load_params
from deepspark_ops.export.deploy_net import build_deploy, opencv_names
from deepspark_ops.export.formats.exported_model import ExportedModel, Format, Reading
from deepspark_ops.export.formats.outside_reader import ReaderFailed, read_outside
from deepspark_ops.export.manifest import DEPLOY_NAME, WEIGHTS_NAME
from deepspark_ops.run_paths import write_text_whole

_OPENCV = Path(__file__).with_name("opencv_reader.py")


def _write(model: ExportedModel) -> None:
    write_text_whole(model.folder / DEPLOY_NAME, format_message(model.deploy))
    write_caffemodel(model.folder / WEIGHTS_NAME, model.build(model.unit_batch), model.params)


def _read(model: ExportedModel) -> tuple[Reading, ...]:
    return Reading(WEIGHTS_NAME, "DeepSpark", _read_back(model)), _read_by_opencv(model)


def _read_back(model: ExportedModel) -> dict[str, npt.NDArray[np.float64]]:
    """Run deploy.prototxt with weights.caffemodel; both files are read from disk."""
    feeds: Mapping[str, npt.NDArray[np.float32]] = model.batch.feeds
    net = build_deploy(read_net(model.folder / DEPLOY_NAME), len(next(iter(feeds.values()))))
    forward = compile_forward(net, n_threads=model.n_threads, outputs=[output.blob for output in model.outputs])
    return _named(model, forward(load_params(net, model.folder / WEIGHTS_NAME), feeds))


def _read_by_opencv(model: ExportedModel) -> Reading:
    """Run both files in OpenCV, whose reader of Caffe's files does not know every layer type."""
    inputs = {layer.top[0] for layer in model.deploy.layer if layer.type == "Input"}
    feeds = {name: values for name, values in model.batch.feeds.items() if name in inputs}
    arguments = [str(model.folder / DEPLOY_NAME), str(model.folder / WEIGHTS_NAME), str(model.unit_batch)]
    makers = opencv_names(model.deploy, [output.blob for output in model.outputs])
    try:
        answers = read_outside(_OPENCV, arguments, feeds, list(makers.values()))
    except ReaderFailed as failure:
        return Reading(WEIGHTS_NAME, "OpenCV", None, str(failure))
    return Reading(WEIGHTS_NAME, "OpenCV", _named(model, {blob: answers[name] for blob, name in makers.items()}))


def _named(model: ExportedModel, blobs: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[np.float64]]:
    """Return the outputs of each sample, from the blobs of a batch."""
    n = model.batch.count
    return {
        output.name: blobs[output.blob].reshape(-1, *output.shape)[:n].astype(np.float64) for output in model.outputs
    }


FORMAT = Format(files=(DEPLOY_NAME, WEIGHTS_NAME), write=_write, read=_read)
