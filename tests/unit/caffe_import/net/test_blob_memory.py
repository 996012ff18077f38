"""A layer that reads what an in-place layer has overwritten in Caffe's shared memory is found; usual nets are clean.

The reference runs the net on arrays that do share memory, as Caffe's blobs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_net, read_net
from caffe_import.net.blob_memory import overwritten_blobs
from caffe_import.net.net_spec import NetSpec, build_net_spec
from tests.paths import FIXTURES

NETS = FIXTURES / "nets"
INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 } } }'
POWER = 'layer { name: "p" type: "Power" bottom: "x" top: "y" power_param { scale: 2 } }'
SHAPED = 'layer { name: "r" type: "Reshape" bottom: "y" top: "z" reshape_param { shape { dim: 4 dim: 2 } } }'
OVER = 'layer { name: "over" type: "Power" bottom: "z" top: "z" power_param { shift: 5 } }'
READER = 'layer { name: "reads" type: "Power" bottom: "y" top: "out" power_param { power: 1 } }'
SPLIT = 'layer { name: "s" type: "Split" bottom: "y" top: "z" top: "w" }'
OF_W = READER.replace('"y"', '"w"')


def built(*layers: str, head: str = "force_backward: true") -> NetSpec:
    return build_net_spec(parse_net(f"{head} {INPUT}" + "".join(layers)), phase="TRAIN")


def blob_values(net: NetSpec, *, shares: bool) -> dict[str, np.ndarray]:
    """Run Input, Power, Reshape and Split; with ``shares`` in Caffe's memory, else with values of each blob's own."""
    blobs: dict[str, np.ndarray] = {}
    for layer in net.layers:
        if layer.type == "Input":
            blobs["x"] = np.arange(8.0).reshape(2, 4)
            continue
        bottom, param = blobs[layer.bottoms[0]], layer.message.power_param
        for top, shape in zip(layer.tops, layer.definition.top_shapes, strict=True):
            if layer.type != "Power":
                blobs[top] = bottom.reshape(shape) if shares else bottom.reshape(shape).copy()
            elif top in layer.bottoms and shares:
                bottom[...] = (param.shift + param.scale * bottom) ** param.power
            else:
                blobs[top] = (param.shift + param.scale * bottom) ** param.power
    return blobs


@pytest.mark.parametrize(
    ("layers", "findings"),
    [
        ((POWER, SHAPED, OVER, READER), [("reads", "y", "over", "z", "forward")]),
        ((POWER, SHAPED, READER, OVER), [("reads", "y", "over", "z", "backward")]),
        ((POWER, SPLIT, OVER, OF_W), [("reads", "w", "over", "z", "forward")]),
        ((POWER, SPLIT, OVER), [("s", "w", "over", "z", "output")]),
        ((POWER, SHAPED, OVER), []),
        ((POWER, SHAPED, OVER.replace('top: "z"', 'top: "out2"'), READER), []),
        ((POWER, OVER.replace('"z"', '"y"'), SHAPED, READER), []),
        ((POWER, SHAPED.replace("Reshape", "Power"), OVER, READER), []),
    ],
)
def test_shared_memory(layers: tuple[str, ...], findings: list[tuple[str, ...]]) -> None:
    net = built(*layers)
    assert [(f.layer, f.blob, f.by, f.by_blob, f.when) for f in overwritten_blobs(net)] == findings
    shared, separate = blob_values(net, shares=True), blob_values(net, shares=False)
    differs = any(not np.array_equal(shared[blob], separate[blob]) for blob in net.outputs)
    assert differs == any(f[-1] in ("forward", "output") for f in findings)


def test_gradients_that_do_not_read_their_bottom_again_are_no_finding() -> None:
    pooled = 'layer { name: "reads" type: "Concat" bottom: "y" bottom: "y" top: "out" }'
    assert overwritten_blobs(built(POWER, SHAPED, pooled, OVER)) == ()
    assert overwritten_blobs(built(POWER, SHAPED, READER, OVER, head="")) == ()  # no backward pass at all
    summed = 'layer { name: "reads" type: "Eltwise" bottom: "y" bottom: "y" top: "out" }'
    assert overwritten_blobs(built(POWER, SHAPED, summed, OVER)) == ()
    multiplied = summed.replace("top:", "eltwise_param { operation: PROD } top:")
    assert {finding.when for finding in overwritten_blobs(built(POWER, SHAPED, multiplied, OVER))} == {"backward"}


def test_dropout_changes_nothing_in_tests() -> None:
    drop = 'layer { name: "over" type: "Dropout" bottom: "z" top: "z" }'
    message = parse_net(INPUT + POWER + SHAPED + drop + READER)
    assert len(overwritten_blobs(build_net_spec(message, phase="TRAIN"))) == 1
    assert overwritten_blobs(build_net_spec(message, phase="TEST")) == ()


@pytest.mark.parametrize("path", sorted(NETS.glob("*.prototxt")), ids=lambda path: path.stem)
def test_usual_nets_are_clean(path: Path) -> None:
    image = (2, 28, 28) if path.stem == "siamese" else (3, 227, 227)
    net = build_net_spec(read_net(path), phase="TRAIN", sample_shapes=lambda _: (image, ()))
    assert overwritten_blobs(net) == ()
