"""A label that is no class is found before a step; the message names layer, sample, value and classes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from caffe_import.files.datum import encode_datum
from caffe_import.files.prototxt import parse_net
from caffe_import.net.label_users import LabelUser
from caffe_import.net.layer_registry import ClassLabels
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.errors import DataError
from deepspark_ops.shards.files.lmdb_shard import sample_key, write_lmdb_shard
from deepspark_ops.train.data.data_binding import DataBinding
from deepspark_ops.train.data.data_layers import FedLayer
from deepspark_ops.train.data.label_check import LabelColumn

NET = """
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "db" batch_size: 2 backend: LMDB } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "found" type: "Accuracy" bottom: "ip" bottom: "label" top: "found" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def fed_layer(folder: Path, net: str = NET, labels: tuple[int, ...] = (0, 1, 2, 1, 0)) -> FedLayer:
    image = np.zeros((1, 2, 2), np.uint8)
    records = [(sample_key(i, f"{i}.png"), encode_datum(image, label)) for i, label in enumerate(labels)]
    write_lmdb_shard(folder / "db", records)
    binding = DataBinding(None, folder)
    built = build_net_spec(parse_net(net), phase="TRAIN", sample_shapes=partial(binding.sample_shapes, "TRAIN"))
    (fed,) = binding.fed_layers(built)
    return fed


def test_label_that_is_no_class_names_layer_sample_value_and_classes(tmp_path: Path) -> None:
    fed = fed_layer(tmp_path, NET.replace("Accuracy", "HingeLoss"), (0, 1, 2, 7, 0))
    with pytest.raises(DataError) as caught:
        fed.read_wrapped(2, 3)
    assert str(caught.value) == (
        'layer "found" (HingeLoss): label 7 of sample 3 ("00000003_3.png") of source of layer "data" is none of the 3'
        ' classes that bottom "ip" has scores for; allowed: 0 to 2; correct the label (the first class is 0), or give'
        " the net as many outputs as there are classes"
    )
    with pytest.raises(DataError, match=r'label 7 of sample 3 \("00000003_3.png"\)'):
        fed.read_wrapped(9, 5)  # the position of a test's cursor goes round
    assert fed.read_wrapped(0, 3)[1].tolist() == [0, 1, 2]
    fed.samples.close()


def test_every_layer_that_reads_stored_labels_is_checked(tmp_path: Path) -> None:
    assert [column.user.layer for column in fed_layer(tmp_path).labels] == ["found", "loss"]
    _, head, tail = NET.replace('bottom: "label" top: "loss"', 'bottom: "x" top: "loss"').split("\n", 2)
    reshape = 'layer { name: "x" type: "Reshape" bottom: "label" top: "x" reshape_param { shape { dim: 2 dim: 1 } } }'
    power = 'layer { name: "x" type: "Power" bottom: "label" top: "x" power_param { shift: 1 } }'
    assert [column.user.layer for column in fed_layer(tmp_path, head + reshape + tail).labels] == ["found", "loss"]
    assert [column.user.layer for column in fed_layer(tmp_path, head + power + tail).labels] == ["found"]


@pytest.mark.parametrize(
    ("values", "ignored", "outside"),
    [
        ([0, 1, 2], None, None),
        ([0, 3, 2], None, (1, 3)),
        ([0, 1, -1], None, (2, -1)),
        ([0, 1, -1], -1, None),
        ([0, 255, 4], 255, (2, 4)),
        ([0.0, -0.5, 2.9], None, None),  # Caffe cuts the fraction off
        ([0.0, 1.0, np.nan], None, (2, np.nan)),
        ([[0, 0], [2, 3], [1, 9]], None, (1, 3)),
    ],
)
def test_first_label_outside(values: list[object], ignored: int | None, outside: tuple[int, float] | None) -> None:
    labels = LabelColumn(1, LabelUser("loss", "SoftmaxWithLoss", "ip", ClassLabels(3, ignored)))
    np.testing.assert_equal(labels.first_outside(np.array(values)), outside)
