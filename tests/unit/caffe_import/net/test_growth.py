"""The work of ``check`` on a net grows as its layers: four times the layers take about four times the operations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from caffe_import.devices.step_memory import StepShape, step_memory
from caffe_import.files.prototxt import parse_net
from caffe_import.net.blob_memory import overwritten_blobs
from caffe_import.net.label_users import label_users
from caffe_import.net.net_spec import NetSpec, build_net_spec
from tests.reference.operation_count import operation_count

N_LAYERS = 20
MAX_GROWTH = 4.8  # 4 for linear work, 16 for quadratic work; the small net pays for the first imports of its types

DATA = 'layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }'
LABELS = 'layer { name: "labels" type: "DummyData" top: "labels" dummy_data_param { shape { dim: 2 } } }'
PRODUCT = 'layer { name: "%s" type: "InnerProduct" bottom: "%s" top: "%s" inner_product_param { num_output: 3 } %s }'
RELU = 'layer { name: "%s" type: "ReLU" bottom: "%s" top: "%s" }'


def products(n: int, fields: str = "") -> list[str]:
    """Return a chain of InnerProduct layers that ends in blob ``b<n - 1>``."""
    bottoms = ["x", *(f"b{k}" for k in range(n - 1))]
    return [PRODUCT % (f"ip{k}", bottoms[k], f"b{k}", fields) for k in range(n)]


def product_chain(n: int) -> list[str]:
    return [DATA, *products(n)]


def sharers(n: int) -> list[str]:
    """Return layers with a shared weight and a shared bias."""
    return [DATA, *products(n, 'param { name: "w" } param { name: "b" }')]


def readers_of_a_blob(n: int) -> list[str]:
    """Return layers that read a common blob, each with its loss on a common label blob."""
    loss = 'layer { name: "loss%d" type: "SoftmaxWithLoss" bottom: "b%d" bottom: "labels" top: "loss%d" }'
    readers = [PRODUCT % (f"ip{k}", "x", f"b{k}", "") for k in range(n)]
    return [DATA, LABELS, *readers, *(loss % (k, k, k) for k in range(n))]


def writers_of_a_blob(n: int) -> list[str]:
    """Return layers that work in place on a common blob."""
    return [DATA, PRODUCT % ("a", "x", "a", ""), *(RELU % (f"relu{k}", "a", "a") for k in range(n))]


def namesakes(n: int) -> list[str]:
    """Return layers of one name."""
    return [DATA, *(RELU % ("relu", f"b{k - 1}" if k else "x", f"b{k}") for k in range(n))]


def residual(n: int) -> list[str]:
    add = 'layer { name: "add%d" type: "Eltwise" bottom: "%s" bottom: "b%d" top: "sum%d" }'
    bottoms = ["x", *(f"sum{k}" for k in range(n - 1))]
    blocks = [
        (
            PRODUCT % (f"ip{k}", bottoms[k], f"b{k}", ""),
            RELU % (f"relu{k}", f"b{k}", f"b{k}"),
            add % (k, bottoms[k], k, k),
        )
        for k in range(n)
    ]
    return [DATA, *(layer for block in blocks for layer in block)]


NETS = (product_chain, sharers, readers_of_a_blob, writers_of_a_blob, namesakes, residual)


def built(layers: list[str]) -> NetSpec:
    return build_net_spec(parse_net("\n".join(layers)), phase="TRAIN")


def growth(nets: Callable[[int], list[str]], work: Callable[[list[str]], Callable[[], object]]) -> float:
    """Return the operations of ``work`` on 4n layers, divided by the operations on n layers."""
    small, large = work(nets(N_LAYERS)), work(nets(4 * N_LAYERS))
    small()  # imports and caches do not count
    return operation_count(large) / operation_count(small)


@pytest.mark.parametrize("nets", NETS)
def test_building_a_net_is_linear_in_its_layers(nets: Callable[[int], list[str]]) -> None:
    def work(layers: list[str]) -> Callable[[], object]:
        message = parse_net("\n".join(layers))
        return lambda: build_net_spec(message, phase="TRAIN")

    assert growth(nets, work) < MAX_GROWTH


@pytest.mark.parametrize(
    "report",
    [overwritten_blobs, label_users, lambda net: step_memory(net, StepShape())],
    ids=["overwritten_blobs", "label_users", "step_memory"],
)
@pytest.mark.parametrize("nets", NETS)
def test_reports_on_a_net_are_linear_in_its_layers(
    nets: Callable[[int], list[str]], report: Callable[[NetSpec], object]
) -> None:
    def work(layers: list[str]) -> Callable[[], object]:
        net = built(layers)
        return lambda: report(net)

    assert growth(nets, work) < MAX_GROWTH
