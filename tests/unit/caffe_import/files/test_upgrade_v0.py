"""V0 layers where Caffe's own tools left no recorded text; those are in ``test_upgrade``."""

from __future__ import annotations

import logging

import pytest

from caffe_import.files.prototxt import parse_net
from caffe_import.proto import caffe_pb2


def test_v0_option_of_another_type_is_dropped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        net = parse_net('layers { layer { name: "r" type: "relu" kernelsize: 3 } }')
    assert net.layer[0] == caffe_pb2.LayerParameter(name="r", type="ReLU")
    assert 'layer "r": V0 type "relu" has no option "kernelsize"; dropped' in caplog.text


def test_v0_image_and_window_data_and_output_options() -> None:
    net = parse_net(
        """
        layers { layer { name: "i" type: "images" source: "l.txt" shuffle_images: true new_height: 5 } top: "x" }
        layers { layer { name: "w" type: "window_data" source: "w.txt" det_fg_threshold: 0.75 cropsize: 9 } top: "y" }
        layers { layer { name: "o" type: "hdf5_output" hdf5_output_param { file_name: "o.h5" } } bottom: "x" }
        layers { layer { name: "p" type: "pool" pool: AVE pad: 1 kernelsize: 2 stride: 2 } bottom: "x" top: "z" }
        """
    )
    images, window, output, pool = net.layer
    assert (images.image_data_param.shuffle, images.image_data_param.new_height) == (True, 5)
    assert (window.window_data_param.fg_threshold, window.transform_param.crop_size) == (0.75, 9)
    assert output.hdf5_output_param.file_name == "o.h5"
    assert (pool.pooling_param.pad, pool.pooling_param.pool) == (1, caffe_pb2.PoolingParameter.AVE)


def test_v0_padding_moves_into_pooling_too() -> None:
    net = parse_net(
        """
        layers { layer { name: "d" type: "data" } top: "x" }
        layers { layer { name: "q" type: "padding" pad: 3 } bottom: "x" top: "x2" }
        layers { layer { name: "p" type: "pool" kernelsize: 2 } bottom: "x2" top: "y" }
        """
    )
    assert [(layer.name, list(layer.bottom)) for layer in net.layer] == [("d", []), ("p", ["x"])]
    assert net.layer[1].pooling_param.pad == 3
