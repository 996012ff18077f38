"""Every layer type has its file, its emitter and its mirror; what Caffe feeds from outside needs no emitter.

The activations share one file, here and in the mirror.
"""

from __future__ import annotations

import pytest

from caffe_import.net.layer_registry import registered_types
from tests.paths import ROOT

pytestmark = pytest.mark.tf

ACTIVATIONS = frozenset(
    {"AbsVal", "BNLL", "Clip", "ELU", "Exp", "Log", "Power", "ReLU", "ReLU6", "Sigmoid", "Swish", "TanH", "Threshold"}
)
FED_FROM_OUTSIDE = {"Data", "HDF5Data", "ImageData", "Input", "MemoryData", "WindowData"}

SECOND_NAMES = {"ConvolutionDepthwise": "DepthwiseConvolution"}


def file_name(type_name: str) -> str:
    """``SoftmaxWithLoss`` -> ``softmax_with_loss``, as the files are named: compared without underscores."""
    return "activations" if type_name in ACTIVATIONS else SECOND_NAMES.get(type_name, type_name).lower()


def stems(folder: str) -> set[str]:
    return {path.stem.replace("_", "") for path in (ROOT / folder).glob("*.py")}


def test_every_type_that_computes_has_an_emitter_and_the_other_way_round() -> None:
    from caffe_import.tf_graph.emitters import registered_emitters

    assert set(registered_emitters()) == set(registered_types()) - FED_FROM_OUTSIDE


@pytest.mark.parametrize("type_name", sorted(registered_types()))
def test_type_lives_in_a_file_of_its_name(type_name: str) -> None:
    module = registered_types()[type_name].define.__module__
    assert module.rpartition(".")[2].replace("_", "") == file_name(type_name)
    if type_name not in FED_FROM_OUTSIDE:
        assert file_name(type_name) in stems("caffe_import/tf_graph/layers")
