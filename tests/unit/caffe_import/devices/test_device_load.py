"""Operations, memory and received bytes of a device, against sums by hand."""

from __future__ import annotations

import pytest

from caffe_import.devices.compute_plan import Placement
from caffe_import.devices.device_load import (
    OPERATIONS_PER_BORDER_BYTE,
    OPERATIONS_PER_BYTE,
    DeviceLoad,
    device_loads,
)
from caffe_import.devices.step_memory import StepShape
from caffe_import.devices.unnamed_layers import place_all
from tests.reference.parsed_net import net_of

# Samples of 6 values, 10 of them: 240 bytes; behind "a" 4 values each, behind "b" 2.
NET = """
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 10 dim: 6 } shape { dim: 10 } } }
layer { name: "a" type: "InnerProduct" bottom: "data" top: "a" inner_product_param { num_output: 4 } }
layer { name: "sigmoid" type: "Sigmoid" bottom: "a" top: "sigmoid" }
layer { name: "b" type: "InnerProduct" bottom: "sigmoid" top: "b" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "b" bottom: "label" top: "loss" }
"""
A_FLOPS, B_FLOPS = 2 * 10 * 6 * 4, 2 * 10 * 4 * 2
A_PARAMS, B_PARAMS = 4 * (6 * 4 + 4), 4 * (4 * 2 + 2)


def loads_of(devices: dict[str, tuple[int, ...]], n_devices: int = 2, text: str = NET, **step: int) -> list[DeviceLoad]:
    net = net_of(text)
    return list(device_loads(net, place_all(devices, net, n_devices), StepShape(**step)))


def test_operations_are_forward_and_backward_without_the_gradient_of_data() -> None:
    first, second = loads_of({"a": (0,), "b": (1,)})
    assert first.layers == ("data", "a", "sigmoid")
    assert second.layers == ("b", "loss")
    assert first.flops - net_of(NET).layer("sigmoid").definition.flops * 2 == 2 * A_FLOPS  # forward and weights
    assert second.flops - net_of(NET).layer("loss").definition.flops * 2 == 3 * B_FLOPS  # and for its bottom


def test_a_blob_of_another_device_crosses_once_for_two_readers() -> None:
    twice = (
        NET
        + 'layer { name: "c" type: "InnerProduct" bottom: "sigmoid" top: "c" inner_product_param { num_output: 2 } }'
    )
    assert [load.border_bytes for load in loads_of({"a": (0,), "b": (1,)})] == [0, 4 * 10 * 4]
    assert [load.border_bytes for load in loads_of({"a": (0,), "b": (1,), "c": (1,)}, text=twice)] == [0, 4 * 10 * 4]
    # Data and labels come from the host, wherever they are read.
    assert [load.border_bytes for load in loads_of({"*": (0,)}, 1)] == [0]
    assert [load.border_bytes for load in loads_of({"a": (1,), "sigmoid": (1,), "b": (0,)})] == [160, 0]


def test_a_split_layer_is_shared_and_each_share_needs_the_whole_bottom() -> None:
    first, second = loads_of({"a": (0, 1), "sigmoid": (0,), "b": (0,)}, n_slots=0)
    assert "a" in first.layers
    assert second.layers == ("a",)
    assert second.flops == A_FLOPS  # half of forward and weights
    assert first.border_bytes == 160 / 2  # the other half of its top
    assert second.border_bytes == 0
    # Half of weights and their gradient, the data, the gradient of the whole top.
    assert second.memory_bytes == 2 * A_PARAMS / 2 + 240 + 160


def test_parameters_of_another_devices_layer_come_over_the_border_and_are_kept_where_they_live() -> None:
    shared = NET.replace('top: "a" inner', 'top: "a" param { name: "w" } inner').replace(
        'layer { name: "loss"',
        'layer { name: "twin" type: "InnerProduct" bottom: "data" top: "twin" param { name: "w" }'
        ' inner_product_param { num_output: 4 } } layer { name: "loss"',
    )
    unshared = loads_of({"a": (0,), "b": (1,)}, text=shared.replace('param { name: "w" }', ""))
    shared_loads = loads_of({"a": (0,), "b": (1,), "twin": (1,)}, text=shared)
    weights = 4 * 6 * 4
    assert shared_loads[1].border_bytes == 160 + weights
    assert shared_loads[0].border_bytes == unshared[0].border_bytes == 0


def test_parameters_that_two_layers_of_a_device_share_count_once() -> None:
    twins = NET + "".join(
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "sigmoid" top: "{name}" param {{ name: "w" }}'
        " inner_product_param { num_output: 2 bias_term: false } }"
        for name in ("twin1", "twin2", "twin3")
    )
    loads = loads_of({"a": (0,), "b": (1,), "twin1": (0,), "twin2": (1,), "twin3": (1,)}, text=twins, n_slots=0)
    plain = loads_of({"a": (0,), "b": (1,)}, n_slots=0)
    weights = 4 * 4 * 2
    assert loads[1].border_bytes == plain[1].border_bytes + weights
    # A further history blob of every weight takes the memory of the weights that a device owns.
    more = loads_of({"a": (0,), "b": (1,), "twin1": (0,), "twin2": (1,), "twin3": (1,)}, text=twins, n_slots=1)
    grown = [new_load.memory_bytes - old_load.memory_bytes for new_load, old_load in zip(more, loads, strict=True)]
    assert grown == [A_PARAMS + weights, B_PARAMS]


def test_a_blob_crosses_once_though_it_is_read_in_two_axis_orders() -> None:
    image = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 5 } } }
    layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
      convolution_param { num_output: 4 kernel_size: 3 } }
    layer { name: "ip" type: "InnerProduct" bottom: "conv1" top: "ip" inner_product_param { num_output: 2 } }
    layer { name: "conv2" type: "Convolution" bottom: "conv1" top: "conv2"
      convolution_param { num_output: 4 kernel_size: 3 } }
    layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
    """
    loads = loads_of({"conv1": (0,), "ip": (1,), "conv2": (1,)}, text=image)
    assert [load.border_bytes for load in loads] == [0, 4 * 2 * 4 * 3 * 3]


def test_time_counts_operations_bytes_moved_and_bytes_over_the_border_both_ways() -> None:
    load = loads_of({"a": (0,), "b": (1,)}, n_slots=1, n_passes=2)[1]
    # Read and written: the sigmoid's top, b's top, the loss's softmax; forward and backward.
    net = net_of(NET)
    moved = 2 * (160 + 80) + 2 * (80 + 40 + 4 + 80)
    params = B_PARAMS * (4 + (3 + 2 * 1) / 2)
    loss_flops = net.layer("loss").definition.flops * 2
    expected = 3 * B_FLOPS + loss_flops + OPERATIONS_PER_BYTE * (moved + params) + OPERATIONS_PER_BORDER_BYTE * 2 * 160
    assert load.time == pytest.approx(expected)


def test_a_device_without_layers_has_no_load() -> None:
    net = net_of(NET)
    everything = Placement(2, {layer.name: 1 for layer in net.layers})
    assert device_loads(net, everything, StepShape())[0] == DeviceLoad(0.0, 0, 0, (), 0)
