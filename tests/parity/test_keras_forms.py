"""Keras forms of layers against outputs recorded from Caffe: every recorded layer that has a form for any batch."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import chdir
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest

from caffe_import.errors import CaffeImportError
from caffe_import.files.prototxt import read_net
from caffe_import.net.batch_size import net_of_any_batch
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.parity.case import Case, load_archive
from caffe_import.parity.findings import members_under
from caffe_import.parity.net_cases import params_of
from caffe_import.proto import caffe_pb2
from deepspark_ops.export.formats.exported_model import CannotHave
from deepspark_ops.export.formats.keras_layers.model import keras_values
from deepspark_ops.export.formats.keras_layers.value import Value
from tests.paths import FIXTURES

pytestmark = pytest.mark.tf

FOLDER = FIXTURES / "caffe"
BOUND = 1e-6
"""Relative to the largest value: float32 sums in another order."""


def net_of_batch(message: caffe_pb2.NetParameter, phase: Any, batch_size: int | None = None) -> NetSpec:
    copy = caffe_pb2.NetParameter()
    copy.CopyFrom(message)
    for layer in copy.layer:
        for shape in layer.input_param.shape:
            if batch_size is not None and len(shape.dim):
                shape.dim[0] = batch_size
    return build_net_spec(copy, phase=phase)


def difference(case: Case) -> float:
    """Return the largest relative difference of a top from Caffe's; raise the reason if the net has no form."""
    message, phase = read_net(case.file(".prototxt")), case.record["phase"]
    archive = load_archive(case.file(".npz"))
    fixed, net = net_of_batch(message, phase), net_of_any_batch(partial(net_of_batch, message, phase))
    tops = members_under(archive, "top")
    if net is None or not tops or any(not shape for shape in fixed.inputs.values()):
        msg = "no form for any batch"
        raise CannotHave(msg)
    feeds = {name: array.reshape(fixed.inputs[name]) for name, array in members_under(archive, "input").items()}
    inputs = {name: keras.Input(array.shape[1:], name=name) for name, array in feeds.items()}
    values_of_inputs = {name: Value(caffe=tensor) for name, tensor in inputs.items()}
    values = keras_values(net, params_of(fixed, members_under(archive, "param")), values_of_inputs)
    outputs = keras.Model(inputs, {name: values[name].caffe for name in tops})(feeds)
    return max(
        float(np.abs(np.reshape(outputs[name], top.shape) - top).max() / np.abs(top).max(initial=1e-6))
        for name, top in tops.items()
    )


def test_keras_computes_what_caffe_computed() -> None:
    records = json.loads((FOLDER / "layers" / "index.json").read_text(encoding="utf-8"))["cases"]
    compared: Counter[str] = Counter()
    faults = {}
    with chdir(FOLDER):
        for record in records:
            case = Case(FOLDER, record)
            if case.is_random:
                continue
            try:
                case_difference = difference(case)
            except (CannotHave, CaffeImportError):
                continue
            compared[record["layer_type"]] += 1
            if not case_difference <= BOUND:
                faults[case.name] = case_difference
    assert not faults
    # The number per type: a form that refuses its layer would pass otherwise.
    assert compared.total() > 110
    assert compared.keys() >= {
        "AbsVal", "ArgMax", "BNLL", "Bias", "Clip", "Concat", "Convolution", "Crop", "Deconvolution", "ELU", "Eltwise",
        "Exp", "Flatten", "InnerProduct", "LRN", "Log", "MVN", "PReLU", "Pooling", "Power", "ReLU", "Reduction",
        "Reshape", "SPP", "Scale", "Sigmoid", "Slice", "Softmax", "Swish", "TanH", "Threshold", "Tile"
    }  # fmt: skip
