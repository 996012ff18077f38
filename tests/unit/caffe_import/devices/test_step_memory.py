"""The peak of a step, against sums by hand of what is there at each layer's gradient.

Real nets against TensorFlow: ``tests/integration/devices``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from caffe_import.devices.compute_plan import Placement
from caffe_import.devices.device_load import device_loads
from caffe_import.devices.layer_memory import layer_rows
from caffe_import.devices.segments import choose_segments
from caffe_import.devices.step_memory import MemoryCount, NetCosts, StepShape, step_memory, step_shape
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.solver.solver_spec import solver_spec
from tests.reference.published_nets import published_net
from tests.unit.caffe_import.devices.test_device_load import NET

TOP = 4 * 10 * 100
WITH_VECTOR = StepShape(has_vector=True)


def tanh_chain(n_layers: int) -> NetSpec:
    text = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 10 dim: 100 } } }\n'
    text += """layer { name: "ip" type: "InnerProduct" bottom: "x" top: "t0"
      inner_product_param { num_output: 100 bias_term: false } }"""
    text += "".join(f'layer {{ name: "l{k}" type: "TanH" bottom: "t{k}" top: "t{k + 1}" }}\n' for k in range(n_layers))
    text += f'layer {{ name: "loss" type: "EuclideanLoss" bottom: "t{n_layers}" bottom: "x" top: "loss" }}\n'
    return build_net_spec(parse_net(text), phase="TRAIN")


def of_pass(net: NetSpec, segments: Sequence[Sequence[str]] = ()) -> int:
    """The most bytes of a pass at a time; the net's few parameters stay out."""
    count = MemoryCount(NetCosts(net, StepShape(), segments))
    for position in range(len(net.layers)):
        count.add(position, 0)
    return count.memory().activation_bytes


def test_a_pass_keeps_every_top_that_a_gradient_reads_and_one_gradient() -> None:
    # Eight tops of TanH, the loss, and the gradient that goes back through them, written over itself. What is fed is
    # counted by itself.
    assert of_pass(tanh_chain(8)) == 8 * TOP + 4 + TOP


def test_a_recomputed_pass_keeps_the_borders_and_one_segment() -> None:
    net = tanh_chain(8)
    # In the last segment: the borders t0 and t4, four tops computed again, one gradient.
    segments = [("l0", "l1", "l2", "l3"), ("l4", "l5", "l6", "l7")]
    assert of_pass(net, segments) == 2 * TOP + 4 * TOP + TOP


def test_one_device_is_the_placement_with_one_device() -> None:
    net = published_net("googlenet", batch_size=2)
    everything = Placement(1, {layer.name: 0 for layer in net.layers})
    for segments in ((), choose_segments(net)):
        (load,) = device_loads(net, everything, WITH_VECTOR, segments)
        assert load.memory_bytes == step_memory(net, WITH_VECTOR, segments).total_bytes


def test_rows_with_recompute_keep_what_crosses_a_border() -> None:
    net = tanh_chain(8)
    rows = {row.layer: row.activation_bytes for row in layer_rows(net, [("l0", "l1", "l2", "l3")])}
    assert [rows[f"l{k}"] // TOP for k in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert rows["ip"] == TOP  # what the segment reads


def test_vectors_of_the_parameters_count_by_solver() -> None:
    net = published_net("caffenet", batch_size=1)
    vector = 4 * net.params.n_params
    largest = 4 * (4096 * 9216 + 4096)  # fc6
    sgd, adam = (step_memory(net, StepShape(n_slots=n_slots, has_vector=True)) for n_slots in (1, 2))
    assert sgd.update_bytes == 3 * vector + 3 * largest
    assert adam.update_bytes - sgd.update_bytes == vector
    assert step_memory(net, StepShape()).update_bytes == 4 * vector  # old and new beside each other
    assert step_memory(net, StepShape(n_passes=4, has_vector=True)).fed_bytes == 4 * 3 * 227 * 227 * 5 + 4 * 5
    assert sgd.total_bytes == sgd.update_bytes + sgd.fed_bytes  # few activations, many parameters


def test_twice_the_batch_takes_twice_the_activations() -> None:
    small, large = (step_memory(published_net("squeezenet", batch_size=size), WITH_VECTOR) for size in (4, 8))
    doubled = small.with_batch(2)
    assert abs(doubled.total_bytes - large.total_bytes) < 0.01 * large.total_bytes


def test_recompute_halves_resnet() -> None:
    net = published_net("resnet50", batch_size=32)
    assert (
        step_memory(net, WITH_VECTOR, choose_segments(net)).total_bytes
        < 0.5 * step_memory(net, WITH_VECTOR).total_bytes
    )


PARAMS = {"a": 4 * (6 * 4 + 4), "b": 4 * (4 * 2 + 2)}


def peak_of(
    names: str,
    step: StepShape,
    text: str = NET,
    params: dict[str, int] | None = None,
    segments: Sequence[Sequence[str]] = (),
) -> int:
    net = build_net_spec(parse_net(text), phase="TRAIN")
    count = MemoryCount(NetCosts(net, step, segments))
    for position, layer in enumerate(net.layers):
        if layer.name in names.split():
            count.add(position, (PARAMS if params is None else params).get(layer.name, 0))
    return count.memory().total_bytes


BARE = StepShape(n_slots=0)


def test_at_the_peak_are_kept_tensors_gradients_under_way_and_the_weights_behind() -> None:
    # At "sigmoid": the weights of "a"; kept are data and sigmoid; the gradient of its bottom replaces that of its top.
    assert peak_of("data a sigmoid", BARE) == PARAMS["a"] + (240 + 160) + 160
    # At "b": its weights and their gradient; kept is sigmoid; the gradient of its top. At the loss: the scores that it
    # keeps, too; the gradient of the weights is not there yet.
    at_b = 2 * PARAMS["b"] + 160 + 80
    at_loss = PARAMS["b"] + (160 + 80) + 80
    assert peak_of("b loss", BARE) == max(at_b, at_loss) + 40  # the labels


@pytest.mark.parametrize("n_in_flight", [1, 2, 5])
def test_each_pass_in_flight_keeps_the_blobs_of_its_gradients(n_in_flight: int) -> None:
    step = StepShape(n_passes=9, n_slots=0, n_in_flight=n_in_flight)
    single_peak = peak_of("data a sigmoid", StepShape(n_passes=9, n_slots=0))
    assert peak_of("data a sigmoid", step) == single_peak + (n_in_flight - 1) * 160


def test_weights_count_with_history_and_the_sum_of_several_passes() -> None:
    plain = peak_of("data a sigmoid", BARE)
    assert peak_of("data a sigmoid", StepShape(n_slots=1)) == plain + PARAMS["a"]
    of_two = peak_of("data a sigmoid", StepShape(n_passes=2, n_slots=0))
    assert of_two == plain + PARAMS["a"] + 240  # and the second pass's batch


def test_gradients_of_large_weights_behind_are_there_while_early_layers_have_theirs() -> None:
    large = {"b": 10**6}
    # At "b": what is kept up to there, and the gradients of both of its blobs. At "sigmoid" there is less.
    assert peak_of("data a sigmoid b loss", BARE, params=large) == 2 * 10**6 + (240 + 40 + 160) + (80 + 160)


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
    names, flying = "data a sigmoid s2 s3 b loss", StepShape(n_passes=3, n_slots=0, n_in_flight=3)
    plain = peak_of(names, flying, chain)
    # The peak: all three tops, at "b" with the gradients of its blobs; at "s3" with one, written over itself.
    at_b, at_s3 = 3 * 160 + (80 + 160), 3 * 160 + 160
    # "sigmoid" and "s2" serve their segment alone; "s3" is read behind it.
    recomputed = [("a", "sigmoid", "s2", "s3")]
    assert peak_of(names, flying, chain, segments=recomputed) == plain - 2 * (160 + 160) - (at_b - at_s3)
    # Of two segments each has its own there at its own time; the second begins with what the first gives.
    halves = [("a", "sigmoid"), ("s2", "s3")]
    assert peak_of(names, flying, chain, segments=halves) == plain - 2 * 160 - (at_b - at_s3)


def test_columns_of_a_convolution_are_there_at_its_gradient_and_do_not_grow_with_the_batch() -> None:
    text = NET.replace("dim: 10 dim: 6 }", "dim: 10 dim: 3 dim: 32 dim: 32 }").replace(
        'type: "InnerProduct" bottom: "data" top: "a" inner_product_param { num_output: 4 }',
        'type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 32 kernel_size: 5 pad: 2 }',
    )
    net = build_net_spec(parse_net(text), phase="TRAIN")
    plain, with_columns = (step_memory(net, StepShape(makes_columns=makes)) for makes in (False, True))
    assert with_columns.column_bytes == 21811200  # TensorFlow's record of the same convolution
    assert with_columns.total_bytes > plain.total_bytes
    assert with_columns.with_batch(3).column_bytes == 21811200


@pytest.mark.parametrize(
    ("fields", "n_slots"),
    [
        ('type: "SGD" momentum: 0.9 weight_decay: 0.1', 1),
        ('type: "Adam" momentum: 0.9 weight_decay: 0.1', 2),
    ],
)
def test_step_shape_is_the_solvers(monkeypatch: pytest.MonkeyPatch, fields: str, n_slots: int) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    spec = solver_spec(parse_solver(f'net: "n" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 iter_size: 3 {fields}'))
    assert step_shape(spec, 2) == StepShape(3, n_slots, 2)
    assert step_shape(spec) == StepShape(3, n_slots, 1, has_vector=True)
    assert step_shape(spec, 4).n_in_flight == 3
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    assert step_shape(spec) == StepShape(3, n_slots, 1, has_vector=True, makes_columns=True)
