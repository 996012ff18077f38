"""The cuts of ``placement=auto`` against all cuts there are, and what is never cut."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random

import pytest

from caffe_import.devices import stages
from caffe_import.devices.device_load import StageCost, device_loads
from caffe_import.devices.placement_file import format_placement, parse_placement, place_layers
from caffe_import.devices.stages import MEMORY_SLACK, auto_placement, best_cuts, uncut_parts
from caffe_import.devices.step_memory import StepShape
from caffe_import.devices.unnamed_layers import place_all
from caffe_import.errors import PlacementError
from caffe_import.net.net_spec import NetSpec
from tests.reference.operation_count import operation_count
from tests.reference.parsed_net import net_of
from tests.reference.published_nets import NETS, published_net


def best_of_all(stages_of_cuts: dict[tuple[int, ...], list[StageCost]]) -> set[tuple[int, ...]]:
    """Return every cut that the module's aims leave: memory within the slack, then time, then bytes over borders."""
    least = min(max(load.memory_bytes for load in loads) for loads in stages_of_cuts.values())
    fit = {
        cuts: loads
        for cuts, loads in stages_of_cuts.items()
        if max(load.memory_bytes for load in loads) <= MEMORY_SLACK * least
    }
    shortest = min(max(load.time for load in loads) for loads in fit.values())
    fast = {cuts: loads for cuts, loads in fit.items() if max(load.time for load in loads) == shortest}
    fewest = min(sum(load.border_bytes for load in loads) for loads in fast.values())
    return {cuts for cuts, loads in fast.items() if sum(load.border_bytes for load in loads) == fewest}


@pytest.mark.parametrize("n_stages", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("seed", range(20))
def test_cuts_are_among_the_best_of_all_cuts_of_random_loads(n_stages: int, seed: int) -> None:
    draw = Random(seed)
    n_parts = draw.randint(n_stages, 9)
    few = draw.choice([3, 1000])  # few values make many cuts equal by the first aims
    loads = [
        [
            StageCost(float(draw.randint(1, few)), draw.randint(1, few), draw.randint(0, few))
            for _ in range(n_parts - first)
        ]
        for first in range(n_parts)
    ]
    costs_of_cuts = {
        cuts: [loads[first][stop - first - 1] for first, stop in pairwise((0, *cuts, n_parts))]
        for cuts in combinations(range(1, n_parts), n_stages - 1)
    }
    assert tuple(best_cuts(loads, n_stages)) in best_of_all(costs_of_cuts)


SMALL = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 12 dim: 12 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 2 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 8 kernel_size: 3 } }
layer { name: "norm1" type: "BatchNorm" bottom: "conv1" top: "conv1" }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "conv2" type: "Convolution" bottom: "conv1" top: "conv2"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 } }
layer { name: "tanh2" type: "TanH" bottom: "conv2" top: "tanh2" }
layer { name: "conv3" type: "Convolution" bottom: "tanh2" top: "conv3"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 } }
layer { name: "sum" type: "Eltwise" bottom: "conv3" bottom: "tanh2" top: "sum" }
layer { name: "pool" type: "Pooling" bottom: "sum" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "fc1" type: "InnerProduct" bottom: "pool" top: "fc1" inner_product_param { num_output: 32 } }
layer { name: "relu2" type: "ReLU" bottom: "fc1" top: "fc1" }
layer { name: "fc2" type: "InnerProduct" bottom: "fc1" top: "fc2" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc2" bottom: "label" top: "loss" }
"""


def names_of(net: NetSpec) -> list[list[str]]:
    return [[net.layers[position].name for position in part] for part in uncut_parts(net)]


def test_layers_in_place_and_splits_stay_with_the_layer_above_and_data_is_in_no_part() -> None:
    assert names_of(net_of(SMALL)) == [
        ["conv1", "norm1", "relu1"],
        ["conv2"],
        ["tanh2", "tanh2_tanh2_0_split"],
        ["conv3"],
        ["sum"],
        ["pool"],
        ["fc1", "relu2"],
        ["fc2"],
        ["loss"],
    ]


def test_splits_of_data_are_in_no_part() -> None:
    net = net_of(SMALL + 'layer { name: "accuracy" type: "Accuracy" bottom: "fc2" bottom: "label" top: "accuracy" }')
    assert "label_label_0_split" in [layer.name for layer in net.layers]
    assert names_of(net)[0][0] == "conv1"
    assert all("label_label_0_split" not in part for part in names_of(net))


def test_layers_before_an_in_place_layer_share_a_group() -> None:
    late = """
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
    layer { name: "x_in_place" type: "ReLU" bottom: "x" top: "x" }
    layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 2 } }
    layer { name: "b" type: "InnerProduct" bottom: "x" top: "b" inner_product_param { num_output: 2 } }
    layer { name: "a_in_place" type: "ReLU" bottom: "a" top: "a" }
    layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }
    layer { name: "loss" type: "Reduction" bottom: "sum" top: "loss" loss_weight: 1 }
    """
    assert names_of(net_of(late)) == [
        ["x_in_place", "x_x_in_place_0_split"],
        ["a", "b", "a_in_place"],
        ["sum"],
        ["loss"],
    ]


@pytest.mark.parametrize("n_devices", [1, 2, 3, 4])
@pytest.mark.parametrize("n_passes", [1, 8])
def test_placement_of_a_net_is_the_best_of_all_consecutive_ones(n_devices: int, n_passes: int) -> None:
    net = net_of(SMALL)
    step = StepShape(n_passes=n_passes, n_slots=1, n_in_flight=n_passes)
    parts = names_of(net)
    placements = {}
    for cuts in combinations(range(1, len(parts)), n_devices - 1):
        named = {
            name: (device,)
            for device, (first, stop) in enumerate(pairwise((0, *cuts, len(parts))))
            for part in parts[first:stop]
            for name in part
        }
        placements[cuts] = place_all(named, net, n_devices)
    best = best_of_all({cuts: list(device_loads(net, placement, step)) for cuts, placement in placements.items()})
    assert auto_placement(net, n_devices, step) in [placements[cuts] for cuts in best]


def chain_of_products(n: int) -> NetSpec:
    """Return a chain of layers with different numbers of outputs."""
    data = 'layer { name: "x" type: "Input" top: "b0" input_param { shape { dim: 2 dim: 3 } } }'
    layers = [
        f'layer {{ name: "ip{k}" type: "InnerProduct" bottom: "b{k}" top: "b{k + 1}"'
        f" inner_product_param {{ num_output: {1 + k * k * 7 % 9} }} }}"
        for k in range(n)
    ]
    return net_of("\n".join([data, *layers]))


def test_the_search_for_stages_grows_little_faster_than_the_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MOST_RUNS", 16)
    nets = [chain_of_products(n) for n in (40, 160)]
    auto_placement(nets[0], 3, StepShape())  # imports and caches do not count
    counts = [operation_count(lambda net=net: auto_placement(net, 3, StepShape())) for net in nets]
    # 5.3 for n log n: a search over four times the layers has a round more. 16 for a look at all runs of layers.
    assert counts[1] / counts[0] < 6.5


@pytest.mark.parametrize("n_devices", [1, 2, 3, 5])
def test_a_search_over_few_candidates_is_nearly_as_good_as_a_full_search(
    n_devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, step = chain_of_products(150), StepShape()
    best = device_loads(net, auto_placement(net, n_devices, step), step)
    monkeypatch.setattr(stages, "MOST_RUNS", 32)
    close = device_loads(net, auto_placement(net, n_devices, step), step)
    for figure in ("time", "memory_bytes"):
        least, of_few = (max(getattr(load, figure) for load in loads) for loads in (best, close))
        assert of_few <= 1.1 * least, figure


def test_more_devices_than_parts_are_refused() -> None:
    assert len(set(auto_placement(net_of(SMALL), 9, StepShape()).device_of.values())) == 9
    with pytest.raises(PlacementError) as raised:
        auto_placement(net_of(SMALL), 10, StepShape())
    assert str(raised.value) == (
        "placement=auto: gpus_per_worker=10, but the training net can be cut into at most 9 stages; give fewer devices,"
        " or a placement file that splits layers"
    )


@pytest.mark.parametrize("name", sorted(path.stem for path in NETS.glob("*.prototxt")))
def test_a_published_net_is_cut_in_its_order_and_read_back_as_it_is_written_out(name: str) -> None:
    net = published_net(name, batch_size=1)
    placement = auto_placement(net, 3, StepShape())
    inner = [placement.device_of[net.layers[position].name] for part in uncut_parts(net) for position in part]
    assert inner == sorted(inner)
    assert set(inner) == {0, 1, 2}
    written = parse_placement(format_placement(placement, net), path="placement.txt")
    assert place_layers(written, net, 3, path="placement.txt") == placement
