"""Cases whose recorded values depend on a random generator: properties of any random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.errors import NetError
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.parity.findings import Findings, members_under
from caffe_import.parity.setting import Setting
from caffe_import.tf_graph.builder import initial_layer_state
from caffe_import.tf_graph.gradients import Passes, run_passes

Array = npt.NDArray[Any]


def check_random_layer(net: NetSpec, archive: Mapping[str, Array], findings: Findings) -> None:
    """Check the property of every random layer in ``net``, on Caffe's numbers and on ours.

    Raises:
        NetError: The net has no layer whose property is known.
    """
    random_layers = [layer for layer in net.layers if layer.type in _PROPERTIES]
    if not random_layers:
        msg = f"no property is known for a random net of {', '.join(sorted({layer.type for layer in net.layers}))}"
        raise NetError(msg)
    caffe_values = Values(
        bottoms=members_under(archive, "input"),
        tops=members_under(archive, "top"),
        top_gradients=members_under(archive, "top_diff"),
        bottom_gradients=dict(members_under(archive, "bottom_diff")),
    )
    first, second = (
        _our_passes(net, caffe_values, 1, findings.setting),
        _our_passes(net, caffe_values, 2, findings.setting),
    )
    our_values = Values(caffe_values.bottoms, first.blobs, caffe_values.top_gradients, first.blob_gradients)
    for layer in random_layers:
        for whose, values in (("Caffe's", caffe_values), ("our", our_values)):
            _PROPERTIES[layer.type](layer, values, whose, findings)
        findings.hold(
            claim=not np.array_equal(first.blobs[layer.tops[0]], second.blobs[layer.tops[0]]),
            otherwise=f"layer {layer.name}: two seeds give the same numbers",
        )


class Values:
    """A forward and backward pass, Caffe's or ours: blob -> array; gradients may be missing (None)."""

    def __init__(
        self,
        bottoms: Mapping[str, Array],
        tops: Mapping[str, Array],
        top_gradients: Mapping[str, Array],
        bottom_gradients: Mapping[str, Array | None],
    ) -> None:
        """Hold the arrays; nothing is copied."""
        self.bottoms = bottoms
        self.tops = tops
        self.top_gradients = top_gradients
        self.bottom_gradients = bottom_gradients


def _our_passes(net: NetSpec, caffe_values: Values, seed: int, setting: Setting) -> Passes:
    params: Vector = np.zeros(net.params.n_params, np.float32)
    return run_passes(
        net,
        params,
        caffe_values.bottoms,
        layer_state=initial_layer_state(net),
        top_gradients=caffe_values.top_gradients,
        seed=seed,
        device=setting.device,
        plan=setting.plan,
    )


def _check_dropout(layer: LayerSpec, values: Values, whose: str, findings: Findings) -> None:
    ratio = layer.message.dropout_param.dropout_ratio
    bottom, top = values.bottoms[layer.bottoms[0]], values.tops[layer.tops[0]]
    scaled = bottom / np.float32(1 - ratio)
    mask = np.isclose(top, scaled, rtol=findings.bounds.forward)
    findings.hold(
        claim=bool((mask | (top == 0)).all()),
        otherwise=f"{whose} outputs are neither 0 nor input/(1-ratio)",
    )
    share, spread = mask.mean(), np.sqrt(ratio * (1 - ratio) / mask.size)
    findings.hold(
        claim=bool(abs(share - (1 - ratio)) < 5 * spread),
        otherwise=f"{whose} share of kept values is {share:.3f}, dropout_ratio is {ratio:g}",
    )
    gradient = values.bottom_gradients.get(layer.bottoms[0])
    if gradient is not None:
        expected = mask * values.top_gradients[layer.tops[0]] / np.float32(1 - ratio)
        findings.compare(f"{whose} gradient under {whose} mask", gradient, expected, findings.bounds.backward)


def _check_stochastic_pooling(layer: LayerSpec, values: Values, whose: str, findings: Findings) -> None:
    bottom, top = values.bottoms[layer.bottoms[0]], values.tops[layer.tops[0]]
    is_in_plane = all(
        np.isin(top[image, channel], bottom[image, channel]).all() for image, channel in np.ndindex(top.shape[:2])
    )
    findings.hold(claim=is_in_plane, otherwise=f"{whose} outputs are not all values of their own input plane")


_PROPERTIES: Mapping[str, Callable[[LayerSpec, Values, str, Findings], None]] = {
    "Dropout": _check_dropout,
    "Pooling": _check_stochastic_pooling,
}
