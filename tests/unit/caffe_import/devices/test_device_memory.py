"""The most that a device keeps at a time, against sums by hand of what is there at each layer's gradient."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from caffe_import.devices.device_memory import MemoryCount, StepShape, gradient_readers, recomputed_tensors, step_shape
from caffe_import.devices.layer_tensors import layer_tensors
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.net_spec import build_net_spec
from caffe_import.solver.solver_spec import solver_spec

# 10 samples: 240 bytes of data, 160 behind "a" and "sigmoid", 80 behind "b".
NET = """
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 10 dim: 6 } shape { dim: 10 } } }
layer { name: "a" type: "InnerProduct" bottom: "data" top: "a" inner_product_param { num_output: 4 } }
layer { name: "sigmoid" type: "Sigmoid" bottom: "a" top: "sigmoid" }
layer { name: "b" type: "InnerProduct" bottom: "sigmoid" top: "b" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "b" bottom: "label" top: "loss" }
"""
PARAMS = {"a": 4 * (6 * 4 + 4), "b": 4 * (4 * 2 + 2)}


def peak_of(
    names: str,
    step: StepShape,
    text: str = NET,
    params: dict[str, int] | None = None,
    segments: Sequence[Sequence[str]] = (),
) -> int:
    layers = layer_tensors(build_net_spec(parse_net(text), phase="TRAIN"))
    sizes = {tensor.name: tensor.n_bytes for layer in layers for tensor in layer.makes}
    count = MemoryCount(step, sizes, gradient_readers(layers), {"data/data", "data/label"})
    for layer, again in zip(layers, recomputed_tensors(layers, segments), strict=True):
        if layer.layer.name in names.split():
            count.add(layer, (PARAMS if params is None else params).get(layer.layer.name, 0), again)
    return count.total()


BARE = StepShape(n_slots=0, n_products=0)


def test_at_the_peak_are_kept_tensors_gradients_under_way_and_the_weights_behind() -> None:
    # At "sigmoid": the weights of "a"; kept are data and sigmoid; gradients of both of its blobs. At "a" there is less.
    assert peak_of("data a sigmoid", BARE) == PARAMS["a"] + (240 + 160) + (160 + 160)
    # At "b": its weights and their gradient; kept is sigmoid; the gradient of its top, and that of its bottom, which
    # goes to another device. At the loss: the scores that it keeps, too, and their gradient twice.
    at_b = 2 * PARAMS["b"] + 160 + (80 + 160)
    at_loss = PARAMS["b"] + (160 + 80) + (80 + 80)
    assert peak_of("b loss", BARE) == max(at_b, at_loss) + 40  # the labels


@pytest.mark.parametrize("n_in_flight", [1, 2, 5])
def test_each_other_pass_in_flight_keeps_what_its_gradients_read(n_in_flight: int) -> None:
    step = StepShape(n_passes=9, n_slots=0, n_products=0, n_in_flight=n_in_flight)
    one = peak_of("data a sigmoid", StepShape(n_passes=9, n_slots=0, n_products=0))
    assert peak_of("data a sigmoid", step) == one + (n_in_flight - 1) * 160


def test_weights_count_with_history_products_and_the_sum_of_several_passes() -> None:
    plain = peak_of("data a sigmoid", BARE)
    assert peak_of("data a sigmoid", StepShape(n_slots=2, n_products=3)) == plain + 5 * PARAMS["a"]
    of_two = peak_of("data a sigmoid", StepShape(n_passes=2, n_slots=0, n_products=0))
    assert of_two == plain + PARAMS["a"] + 240  # and the second pass's batch


def test_gradients_of_large_weights_behind_are_there_while_early_layers_have_theirs() -> None:
    large = {"b": 10**6}
    # At "b": what is kept up to there, the gradients of its top and, twice, of its bottom. At "sigmoid" there is less.
    assert peak_of("data a sigmoid b loss", BARE, params=large) == 2 * 10**6 + (240 + 40 + 160) + (80 + 160 + 160)


def test_gradients_of_a_blob_wait_for_all_its_readers() -> None:
    two = NET.replace(
        'layer { name: "loss"',
        'layer { name: "c" type: "InnerProduct" bottom: "sigmoid" top: "c" inner_product_param { num_output: 2 } }'
        ' layer { name: "loss2" type: "Reduction" bottom: "c" top: "loss2" loss_weight: 1 } layer { name: "loss"',
    )
    names = "data a sigmoid"
    assert peak_of(names, BARE, two, {}) == peak_of(names, BARE, NET, {}) + 160


def test_what_is_computed_again_is_there_once_and_not_for_each_pass_in_flight() -> None:
    chain = NET.replace('bottom: "sigmoid" top: "b"', 'bottom: "s3" top: "b"').replace(
        'layer { name: "b"',
        'layer { name: "s2" type: "Sigmoid" bottom: "sigmoid" top: "s2" }'
        ' layer { name: "s3" type: "Sigmoid" bottom: "s2" top: "s3" } layer { name: "b"',
    )
    names, flying = "data a sigmoid s2 s3 b loss", StepShape(n_passes=3, n_slots=0, n_products=0, n_in_flight=3)
    plain = peak_of(names, flying, chain)
    # The peak: all three tops, at "b" with its gradient and, twice, its bottom's; at "s3" with those of two tops.
    at_b, at_s3 = 3 * 160 + 80 + 2 * 160, 3 * 160 + 2 * 160
    # "sigmoid" and "s2" serve their segment alone; "s3" is read behind it.
    one = [("a", "sigmoid", "s2", "s3")]
    assert peak_of(names, flying, chain, segments=one) == plain - 2 * (160 + 160) - (at_b - at_s3)
    # Of two segments each has its own there at its own time; the second begins with what the first gives.
    halves = [("a", "sigmoid"), ("s2", "s3")]
    assert peak_of(names, flying, chain, segments=halves) == plain - 2 * 160 - (at_b - at_s3)


@pytest.mark.parametrize(
    ("fields", "n_slots", "n_products"),
    [
        ('type: "SGD" momentum: 0.9 weight_decay: 0.1', 1, 2),
        ('type: "SGD" momentum: 0.9', 1, 1),
        ('type: "SGD" weight_decay: 0.1', 1, 1),
        ('type: "AdaGrad" weight_decay: 0.1', 1, 1),
        ('type: "Adam" momentum: 0.9 weight_decay: 0.1', 2, 3),
    ],
)
def test_step_shape_is_the_solvers(fields: str, n_slots: int, n_products: int) -> None:
    spec = solver_spec(parse_solver(f'net: "n" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 iter_size: 3 {fields}'))
    assert step_shape(spec, 2) == StepShape(3, n_slots, n_products, 2)
    assert step_shape(spec, 4).n_in_flight == 3
