import numpy as np
import pytest

from caffe_import.net.score_path import last_convolution, score_before_activation
from caffe_import.tf_graph.predict import compile_forward
from caffe_import.tf_graph.score_gradients import ScoreGradientFunction
from tests.reference.parsed_net import net_of
from tests.reference.small_nets import SMALL_NETS

pytestmark = pytest.mark.tf

N_CLASSES = 4
STEP = 1e-2


def values_of(net, seed=0):
    """Return parameters and a sample for every input, with values of the order of 1."""
    rng = np.random.default_rng(seed)
    params = rng.normal(0, 0.3, net.params.n_params).astype(np.float32)
    for layer in net.layers:
        for at in range(len(layer.definition.blobs)):
            entry = net.params.entries[net.params.uses[layer.name, at]]
            if layer.type == "BatchNorm":  # sums of a statistic: positive
                params[entry.offset : entry.offset + entry.size] = 1.0
    feeds = {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in net.inputs.items()}
    return params, feeds


def weights_of(net, params, layer):
    entry = net.params.entries[net.params.uses[layer, 0]]
    return params[entry.offset : entry.offset + entry.size]


def gradients_of(net, params, feeds, position, source="data", result="prob"):
    function = ScoreGradientFunction(net, source=source, result=result)
    return function, function(params, feeds, np.full(feeds[source].shape[0], position))


def by_differences(score, values, indices):
    """Return the central difference quotients of ``score`` at some places of ``values``."""
    quotients = []
    for index in indices:
        shifted = [values.copy(), values.copy()]
        for array, sign in zip(shifted, (1, -1), strict=True):
            array[index] += sign * STEP
        quotients.append((score(shifted[0]) - score(shifted[1])) / (2 * STEP))
    return np.array(quotients)


def some_places(shape, n=12):
    rng = np.random.default_rng(1)
    return [tuple(int(rng.integers(0, extent)) for extent in shape) for _ in range(n)]


@pytest.mark.parametrize("name", SMALL_NETS)
def test_the_gradient_of_a_score_with_respect_to_the_data_is_the_difference_quotient(name):
    net = net_of(SMALL_NETS[name], "TEST")
    params, feeds = values_of(net)
    function, gradients = gradients_of(net, params, feeds, 2)
    assert function.score == "scores"
    forward = compile_forward(net, n_threads=1, outputs=["scores"])

    def score(data):
        return float(forward(params, {**feeds, "data": data})["scores"].reshape(-1, N_CLASSES)[0, 2])

    assert gradients.scores == pytest.approx([score(feeds["data"])], rel=1e-4)
    indices = some_places(feeds["data"].shape)
    quotients = by_differences(score, feeds["data"], indices)
    computed = np.array([gradients.source[index] for index in indices])
    scale = np.abs(gradients.source).max()
    assert scale > 0
    # A kink of ReLU or a change of the maximum between the two points moves a quotient; most places have neither.
    assert np.median(np.abs(computed - quotients)) < 0.01 * scale
    assert np.mean(np.abs(computed - quotients) < 0.1 * scale) > 0.7


CONVOLUTIONS = """
name: "two" layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 5 dim: 5 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
        convolution_param { num_output: 3 kernel_size: 2 } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "side" type: "Convolution" bottom: "data" top: "side" convolution_param { num_output: 1 kernel_size: 1 } }
layer { name: "drop" type: "Silence" bottom: "side" }
layer { name: "scores" type: "InnerProduct" bottom: "conv1" top: "scores" inner_product_param { num_output: 3 } }
layer { name: "prob" type: "Softmax" bottom: "scores" top: "prob" }
"""


def test_the_features_of_the_last_convolution_by_hand():
    """The convolution, and the gradient of a score before ReLU, as loops: the weight where the top is positive."""
    net = net_of(CONVOLUTIONS, "TEST")
    params, feeds = values_of(net)
    function, gradients = gradients_of(net, params, feeds, 1)
    assert function.convolution == "conv1"
    kernel, bias = params[:24].reshape(3, 2, 2, 2), params[24:27]
    weights = weights_of(net, params, "scores").reshape(3, 3, 4, 4)
    data = feeds["data"][0]
    for channel, row, column in np.ndindex(3, 4, 4):
        top = bias[channel] + (kernel[channel] * data[:, row : row + 2, column : column + 2]).sum()
        assert gradients.feature_maps[0, channel, row, column] == pytest.approx(top, rel=1e-4, abs=1e-5)
        slope = weights[1, channel, row, column] if top > 0 else 0.0
        assert gradients.feature_gradients[0, channel, row, column] == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_a_net_without_a_convolution_has_the_gradient_alone():
    net = net_of(
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 1 dim: 3 dim: 3 } } }'
        'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }',
        "TEST",
    )
    params, feeds = values_of(net)
    function = ScoreGradientFunction(net, source="data", result="ip")
    gradients = function(params, feeds, np.array([0, 1]))
    assert (function.convolution, gradients.feature_maps, gradients.feature_gradients) == (None, None, None)
    weights = params[:18].reshape(2, 1, 3, 3)
    assert gradients.source == pytest.approx(weights)  # each sample has a class of its own


def test_a_gradient_flows_past_propagate_down_false():
    text = CONVOLUTIONS.replace('top: "scores" inner', 'top: "scores" propagate_down: false inner')
    net = net_of(text, "TEST")
    params, feeds = values_of(net)
    _, gradients = gradients_of(net, params, feeds, 1)
    _, expected = gradients_of(net_of(CONVOLUTIONS, "TEST"), params, feeds, 1)
    assert np.array_equal(gradients.source, expected.source)
    assert np.abs(gradients.source).max() > 0


def test_of_several_results_each_has_its_own_gradient():
    text = CONVOLUTIONS + (
        'layer { name: "age" type: "InnerProduct" bottom: "data" top: "age" inner_product_param { num_output: 1 } }'
    )
    net = net_of(text, "TEST")
    params, feeds = values_of(net)
    function, gradients = gradients_of(net, params, feeds, 0, result="age")
    assert (function.score, function.convolution) == ("age", None)
    assert gradients.source.reshape(-1) == pytest.approx(weights_of(net, params, "age").reshape(-1))


def test_a_convolution_of_a_single_pixel_has_no_map():
    text = CONVOLUTIONS.replace(
        'type: "InnerProduct" bottom: "conv1" top: "scores" inner_product_param { num_output: 3 }',
        'type: "Convolution" bottom: "conv1" top: "scores" convolution_param { num_output: 3 kernel_size: 4 }',
    )
    net = net_of(text, "TEST")
    assert last_convolution(net, "data", "scores") == "conv1"
    assert score_before_activation(net, "scores") == "scores"
