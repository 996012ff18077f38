"""Keras forms of layer types that no case recorded from Caffe has, against the net in TensorFlow.

``tests/parity/test_keras_forms.py`` compares the other types with Caffe's own outputs.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest

from caffe_import.net.batch_size import net_of_any_batch
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.tf_graph.builder import initial_layer_state
from caffe_import.tf_graph.gradients import run_passes
from deepspark_ops.export.formats.keras_layers.model import keras_values
from deepspark_ops.export.formats.keras_layers.value import Value
from tests.reference.layer_check import net_of

pytestmark = pytest.mark.tf

IMAGE: Shape = (4, 5, 6)
LAYERS: dict[str, tuple[str, tuple[Shape, ...]]] = {
    "Axpy": ('top: "n0"', ((4,), IMAGE, IMAGE)),
    "BatchNorm": ('top: "n0"', (IMAGE,)),
    "ConvolutionDepthwise": ('top: "n0" convolution_param { num_output: 4 kernel_size: 3 pad: 1 }', (IMAGE,)),
    "DepthwiseConvolution": ('top: "n0" convolution_param { num_output: 4 kernel_size: 3 stride: 2 }', (IMAGE,)),
    "Dropout": ('top: "n0"', (IMAGE,)),
    "Embed": ('top: "n0" embed_param { input_dim: 7 num_output: 3 bias_term: true }', ((5,),)),
    "Interp": ('top: "n0" interp_param { height: 9 width: 11 }', (IMAGE,)),
    "Normalize": ('top: "n0"', (IMAGE,)),
    "Permute": ('top: "n0" permute_param { order: 0 order: 2 order: 3 order: 1 }', (IMAGE,)),
    "ReLU6": ('top: "n0"', (IMAGE,)),
    "ShuffleChannel": ('top: "n0" shuffle_channel_param { group: 2 }', (IMAGE,)),
    "Silence": ("", (IMAGE,)),
    "Split": ('top: "n0" top: "n1"', (IMAGE,)),
    "Upsample": ('top: "n0" upsample_param { scale: 2 }', (IMAGE,)),
}
"""Type -> its fields, and the shapes of one sample of its bottoms."""


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("layer_type", LAYERS)
def test_the_keras_form_computes_what_the_net_computes(layer_type: str, channels_last: bool) -> None:
    fields, sample_shapes = LAYERS[layer_type]

    def build(batch: int) -> NetSpec:
        shapes = [(batch, *shape) for shape in sample_shapes]
        return net_of(f'type: "{layer_type}" {fields}', shapes, phase="TEST", channels_last=channels_last)

    net, any_batch = build(3), net_of_any_batch(build)
    assert any_batch is not None
    rng = np.random.default_rng(8)
    feeds = {
        name: rng.integers(0, 7, shape).astype(np.float32)
        if layer_type == "Embed"
        else rng.normal(3, 2, shape).astype(np.float32)
        for name, shape in net.inputs.items()
    }
    params = rng.uniform(0.5, 2, net.params.n_params).astype(np.float32)
    passes = run_passes(net, params, feeds, layer_state=initial_layer_state(net), top_gradients={})
    inputs = {name: keras.Input(array.shape[1:], name=name) for name, array in feeds.items()}
    values = keras_values(any_batch, params, {name: Value(caffe=tensor) for name, tensor in inputs.items()})
    tops = net.layers[-1].tops
    outputs = keras.Model(inputs, [values[name].caffe for name in (*tops, "x0")])(feeds)
    for top, output in zip(tops, outputs, strict=False):
        np.testing.assert_allclose(output, passes.blobs[top], rtol=1e-5, atol=1e-5)
