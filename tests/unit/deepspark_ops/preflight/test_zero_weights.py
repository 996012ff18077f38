"""Layers whose weights stay 0, or whose units stay equal, against the weights after some steps of training."""

import itertools

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_solver
from caffe_import.net.initial_vector import initial_vector
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.train_step import compile_training
from deepspark_ops.preflight.zero_weights import zero_weights
from tests.reference.parsed_net import net_of

pytestmark = pytest.mark.tf

STEPS = 5
DATA = """
layer { name: "in" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 6 dim: 2 dim: 4 dim: 4 } shape { dim: 6 } } }
"""
RANDOM = 'weight_filler { type: "gaussian" std: 0.5 }'
FROZEN = "param { lr_mult: 0 } param { lr_mult: 0 } "
SOLVER = solver_spec(parse_solver('base_lr: 0.1 lr_policy: "fixed" max_iter: 100'))


def product(name, bottom, options="", n=4):
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" '
        f"inner_product_param {{ num_output: {n} {options} }} }}"
    )


def convolution(name, bottom, options="", n=4):
    return (
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" '
        f"convolution_param {{ num_output: {n} kernel_size: 3 pad: 1 {options} }} }}"
    )


def single(kind, bottom, top=None, options=""):
    return f'layer {{ name: "{kind}_{bottom}" type: "{kind}" bottom: "{bottom}" top: "{top or bottom}" {options} }}'


def loss(bottom, name="loss"):
    return f'layer {{ name: "{name}" type: "SoftmaxWithLoss" bottom: "{bottom}" bottom: "label" top: "{name}" }}'


def after_training(net):
    """Return the layers whose weights are 0 after training, and those that began at 0 and have equal units."""
    function = compile_training(net, SOLVER, n_threads=1)
    rng = np.random.default_rng(0)
    feeds = {
        name: (
            rng.integers(0, 3, (STEPS, *shape)) if name == "label"
            else np.ones((STEPS, *shape)) if name == "cont"
            else rng.normal(size=(STEPS, *shape))
        ).astype(np.float32)
        for name, shape in net.inputs.items()
    }  # fmt: skip
    start = initial_vector(net, seed=1)
    state, _ = function.run(
        function.initial_state(start), step=0, n_steps=STEPS, rate_scale=1.0, seed=0, worker=0, feeds=feeds,
        gives_away=False,
    )  # fmt: skip
    stay, equal = [], []
    after = net.params.views(np.array(state.params_view()))
    for name, weights in net.params.views(start).items():
        if not name.endswith("[0]") or weights.any() or weights.ndim < 2:
            continue
        units = after[name].reshape(len(weights), -1)
        if not units.any():
            stay.append(name[:-3])
        elif np.allclose(units, units[0], rtol=1e-4, atol=0):
            equal.append(name[:-3])
    return tuple(stay), tuple(equal)


def require_agreement(text, data=DATA):
    net = net_of(data + text)
    result = zero_weights(net, ())
    assert (result.stay, result.stay_equal) == after_training(net)
    return result


@pytest.mark.parametrize("activation", ["", "ReLU", "TanH", "Sigmoid"])
@pytest.mark.parametrize("bias", ["", "bias_filler { value: 0.1 }", "bias_term: false"])
def test_a_chain_of_layers_with_and_without_a_filler(activation, bias):
    for fillers in itertools.product(["", RANDOM], repeat=3):
        layers = [convolution("a", "data", f"{fillers[0]} {bias}"), product("b", "a", f"{fillers[1]} {bias}")]
        between = [single(activation, name) if activation else "" for name in ("a", "b")]
        text = layers[0] + between[0] + layers[1] + between[1] + product("c", "b", fillers[2], 3) + loss("c")
        require_agreement(text)


NETS = {
    "heads on random features": (
        convolution("a", "data", RANDOM) + single("ReLU", "a") + product("b", "a", n=3) + loss("b")
        + product("c", "a", n=3) + loss("c", "loss2"),
        ((), ()),
    ),
    "a head of two zero layers": (
        convolution("a", "data", RANDOM) + single("ReLU", "a") + product("b", "a", n=3) + loss("b")
        + product("c", "a") + product("d", "c", n=3) + loss("d", "loss2"),
        (("c", "d"), ()),
    ),
    "a loss in the middle": (
        convolution("a", "data") + single("TanH", "a") + product("b", "a", RANDOM, 3) + loss("b")
        + product("c", "a", n=3) + loss("c", "loss2"),
        ((), ()),
    ),
    "a branch beside a random one": (
        convolution("a", "data", RANDOM) + convolution("b", "a")
        + 'layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }' + single("ReLU", "sum")
        + product("c", "sum", n=3) + loss("c"),
        ((), ()),
    ),
    "normalised zeros": (
        convolution("a", "data") + single("BatchNorm", "a")
        + single("Scale", "a", options="scale_param { bias_term: true }") + single("ReLU", "a")
        + single("Pooling", "a", "p", "pooling_param { pool: MAX kernel_size: 2 stride: 2 }")
        + product("b", "p", RANDOM, 3) + loss("b"),
        (("a",), ()),
    ),
    "masks of units": (
        product("a", "data") + single("Sigmoid", "a") + single("Dropout", "a", "drop")
        + product("b", "drop", n=3) + loss("b"),
        ((), ()),
    ),
    "frozen zeros": (
        product("a", "data").replace("inner_product_param", FROZEN + "inner_product_param")
        + product("b", "a", RANDOM, 3) + loss("b"),
        (("a",), ()),
    ),
    "shared weights": (
        product("a", "data", n=4).replace("inner_product_param", 'param { name: "w" } inner_product_param')
        + single("ReLU", "a")
        + product("b", "data", n=4).replace("inner_product_param", 'param { name: "w" } inner_product_param')
        + product("c", "a", RANDOM, 3) + loss("c") + product("d", "b", RANDOM, 3) + loss("d", "loss2"),
        ((), ()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_nets_with_branches(name):
    text, expected = NETS[name]
    result = require_agreement(text)
    assert (result.stay, result.stay_equal) == expected


@pytest.mark.parametrize(("kind", "stay"), [("LSTM", ()), ("RNN", ("a",))])
def test_recurrent_layers(kind, stay):
    shapes = "".join(f"shape {{ {dims} }}" for dims in ("dim: 2 dim: 3 dim: 4", "dim: 2 dim: 3", "dim: 2 dim: 3"))
    data = f"""layer {{ name: "in" type: "Input" top: "data" top: "cont" top: "label" input_param {{ {shapes} }} }}"""
    recurrent = f'''layer {{ name: "a" type: "{kind}" bottom: "data" bottom: "cont" top: "a"
      recurrent_param {{ num_output: 4 }} }}'''
    head = product("b", "a", RANDOM + " axis: 2", 3)
    scored = loss("b").replace("top:", "softmax_param { axis: 2 } top:")
    assert require_agreement(recurrent + head + scored, data).stay == stay


def test_groups_of_channels_learn_apart():
    grouped = convolution("b", "a", "group: 2") + product("c", "b", RANDOM, 3) + loss("c")
    require_agreement(convolution("a", "data") + single("Sigmoid", "a") + grouped)
    require_agreement(convolution("a", "data") + single("Sigmoid", "a") + grouped.replace("group: 2", ""))


def test_weights_from_a_file_are_no_zeros():
    net = net_of(DATA + convolution("a", "data") + single("ReLU", "a") + product("b", "a", RANDOM, 3) + loss("b"))
    assert zero_weights(net, ()).stay == ("a",)
    assert zero_weights(net, ("a",)).stay == ()
