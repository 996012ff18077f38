"""Where nets are cut for recomputing, against what is known of a chain, and the rules of a graph."""

from __future__ import annotations

from itertools import pairwise

import pytest

from caffe_import.devices.compute_plan import Placement
from caffe_import.devices.layer_runs import layer_runs
from caffe_import.devices.segments import best_cuts, choose_segments, peak_bytes
from caffe_import.files.prototxt import parse_net
from caffe_import.net.blob_memory import memory_of_blobs
from caffe_import.net.net_spec import NetSpec, build_net_spec
from tests.reference.finest_segments import finest_segments
from tests.reference.operation_count import operation_count
from tests.reference.published_nets import published_net

INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 10 dim: 100 } } }\n'
LOSS = 'layer { name: "loss" type: "EuclideanLoss" bottom: "%s" bottom: "x" top: "loss" }\n'


def tanh_chain(n_layers: int) -> NetSpec:
    """Return n_layers TanH layers behind an InnerProduct; each keeps its top of 4,000 bytes."""
    text = (
        INPUT
        + 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "t0" inner_product_param { num_output: 100 } }'
    )
    text += "".join(f'layer {{ name: "l{k}" type: "TanH" bottom: "t{k}" top: "t{k + 1}" }}\n' for k in range(n_layers))
    return build_net_spec(parse_net(text + LOSS % f"t{n_layers}"), phase="TRAIN")


def test_a_chain_of_n_equal_layers_takes_about_two_square_roots_of_n() -> None:
    segments = best_cuts(tanh_chain(64))
    top = 4 * 10 * 100
    assert peak_bytes(segments) <= 18 * top  # 2 sqrt(64), and the loss; all kept: 64
    assert 5 <= sum(segment.is_recomputed for segment in segments) <= 12


def test_the_last_layers_are_not_computed_again() -> None:
    net = tanh_chain(64)
    names = [name for segment in choose_segments(net) for name in segment]
    assert "loss" not in names
    assert "l63" not in names
    assert {"l1", "l10"} <= set(names)


def test_a_segment_of_a_placed_net_is_on_one_device() -> None:
    net = tanh_chain(64)
    device_of = {layer.name: int(at > 30) for at, layer in enumerate(net.layers)}
    segments = choose_segments(net, Placement(2, device_of))
    assert segments
    assert all(len({device_of[name] for name in segment}) == 1 for segment in segments)


def test_a_layer_that_devices_share_is_not_computed_again() -> None:
    net = tanh_chain(64)
    device_of = {layer.name: 0 for layer in net.layers if layer.name != "l8"}
    segments = choose_segments(net, Placement(2, device_of, {"l8": (0, 1)}))
    assert segments
    assert not any("l8" in segment for segment in segments)


def test_no_cut_is_inside_a_chain_of_in_place_layers() -> None:
    net = published_net("resnet50", batch_size=1)
    memory = memory_of_blobs(net)
    for segment, next_segment in pairwise(finest_segments(net)):
        tops = {memory[top] for name in segment for top in net.layer(name).tops}
        written = {
            memory[top] for name in next_segment for top in net.layer(name).tops if top in net.layer(name).bottoms
        }
        assert not tops & written


def test_runs_name_what_crosses_their_borders() -> None:
    net = published_net("googlenet", batch_size=1)
    runs = layer_runs(net, choose_segments(net))
    assert [layer.name for run in runs for _, layer in run.layers] == [layer.name for layer in net.layers]
    available: set[str] = set()
    for run in runs:
        assert set(run.reads) <= available
        available |= set(run.gives)
    assert set(net.outputs) <= available


def test_segments_of_published_nets_keep_a_third_or_less() -> None:
    for name, share in (("resnet50", 0.3), ("googlenet", 0.4), ("squeezenet", 0.35)):
        segments = best_cuts(published_net(name, batch_size=2))
        total_bytes = sum(segment.own_bytes for segment in segments)
        assert peak_bytes(segments) <= share * total_bytes, name


@pytest.mark.slow
def test_the_search_for_segments_grows_little_faster_than_the_net() -> None:
    small, large = (tanh_chain(n) for n in (40, 160))
    choose_segments(small)  # imports and caches do not count
    counts = [operation_count(lambda net=net: choose_segments(net)) for net in (small, large)]
    # At most 8, for n sqrt(n): a segment of the best cuts has about sqrt(n) layers. 34 for sums over all pairs of cuts.
    assert counts[1] / counts[0] < 6.5


def test_runs_of_layers_are_linear_in_the_layers() -> None:
    nets = [tanh_chain(n) for n in (60, 240)]
    work = [(net, finest_segments(net)) for net in nets]
    layer_runs(*work[0])
    counts = [operation_count(lambda pair=pair: layer_runs(*pair)) for pair in work]
    assert counts[1] / counts[0] < 4.8  # 4 for linear work, 16 for a look at all layers for each run
