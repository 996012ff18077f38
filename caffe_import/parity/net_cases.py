"""Cases of kind ``layer`` and ``net``: forward values, gradients, further passes, and the net as Caffe built it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.files.prototxt import read_net
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.net.param_layout import Vector
from caffe_import.parity.case import Case, load_archive
from caffe_import.parity.findings import Findings, members_under
from caffe_import.parity.random_properties import check_random_layer
from caffe_import.tf_graph.builder import initial_layer_state
from caffe_import.tf_graph.gradients import Passes, run_passes

Array = npt.NDArray[Any]


def run(case: Case, findings: Findings) -> None:
    """Compare every variant of the case."""
    variants = case.record.get("variants") or [{"tag": "", "phase": case.record["phase"]}]
    message = read_net(case.file(".prototxt"))
    for variant in variants:
        tag = f".{variant['tag']}" if variant["tag"] else ""
        archive = load_archive(case.file(".prototxt").with_suffix(f"{tag}.npz"))
        net = build_net_spec(
            message, phase=variant["phase"], level=variant.get("level", 0), stages=tuple(variant.get("stages", ()))
        )
        where = f"{variant['tag']}:" if variant["tag"] else ""
        _compare_meta(net, json.loads(str(archive["meta"])), where, findings)
        if case.is_random:
            check_random_layer(net, archive, findings)
        else:
            _compare_net(net, archive, where, findings)


def params_of(net: NetSpec, blobs: Mapping[str, Array]) -> Vector:
    """Return the parameter vector made of ``layer/index`` -> blob; blobs that are missing stay zero.

    Raises:
        ValueError: A blob that the net does not have, or of another size.
    """
    vector = np.zeros(net.params.n_params, np.float32)
    for name, blob in blobs.items():
        layer, _, index = name.rpartition("/")
        entry = net.params.entry(layer, int(index))
        vector[entry.offset : entry.stop] = blob.reshape(-1)
    return vector


def compare_params(
    net: NetSpec, vector: Vector, blobs: Mapping[str, Array], where: str, bound: float, findings: Findings
) -> None:
    """Compare ``layer/index`` -> blob with the vector's blobs."""
    for name, caffe_blob in blobs.items():
        layer, _, index = name.rpartition("/")
        entry = net.params.entry(layer, int(index))
        findings.compare(f"{where}{name}", vector[entry.offset : entry.stop].reshape(entry.shape), caffe_blob, bound)


def _compare_net(net: NetSpec, archive: Mapping[str, Array], where: str, findings: Findings) -> None:
    params = params_of(net, members_under(archive, "param"))
    passes = run_passes(
        net,
        params,
        _inputs(net, archive),
        layer_state=initial_layer_state(net),
        top_gradients=members_under(archive, "top_diff"),
        device=findings.setting.device,
        plan=findings.setting.plan,
    )
    # Recorded after the forward pass, in which Filter changes its shape.
    shapes = {name: list(blob.shape) for name, blob in passes.blobs.items()}
    findings.agree(f"{where}blob shapes", shapes, json.loads(str(archive["meta"]))["blobs"])
    _compare_forward(net, passes, params, archive, where, findings)
    if any(members_under(archive, kind) for kind in ("top_diff", "bottom_diff", "param_diff", "blob_diff")):
        _compare_backward(net, passes, archive, where, findings)
    for further in ("fwd2", "fwd3"):
        second_pass = members_under(archive, further)
        if second_pass:
            params_before = passes.params
            passes = run_passes(
                net,
                params_before,
                _inputs(net, second_pass),
                layer_state=passes.layer_state,
                top_gradients={},
                device=findings.setting.device,
                plan=findings.setting.plan,
            )
            _compare_forward(net, passes, params_before, second_pass, f"{where}{further}/", findings)


def _inputs(net: NetSpec, archive: Mapping[str, Array]) -> dict[str, Array]:
    # A blob without axes is recorded with one.
    return {name: array.reshape(net.inputs[name]) for name, array in members_under(archive, "input").items()}


def _compare_meta(net: NetSpec, meta: Mapping[str, Any], where: str, findings: Findings) -> None:
    layers = [
        {
            "name": layer.name,
            "type": layer.type,
            "bottom": list(layer.bottoms),
            "top": list(layer.tops),
            "param_shapes": [list(blob.shape) for blob in layer.definition.blobs],
        }
        for layer in net.layers
    ]
    findings.agree(f"{where}layers", layers, meta["layers"])
    if not any(layer.type == "Filter" for layer in net.layers):
        findings.agree(f"{where}declared shapes", {k: list(v) for k, v in net.blob_shapes.items()}, meta["blobs"])
    findings.agree(f"{where}inputs", list(net.inputs), meta["inputs"])
    findings.agree(f"{where}outputs", list(net.outputs), meta["outputs"])
    weights = {
        top: weight
        for layer in net.layers
        for top, weight in zip(layer.tops, layer.loss_weights, strict=True)
        if weight != 0
    }
    caffe_weights = {name: weight for name, weight in meta["loss_weights"].items() if weight != 0}
    findings.agree(f"{where}blobs with a loss weight", sorted(weights), sorted(caffe_weights))
    for name in weights.keys() & caffe_weights.keys():
        findings.compare(f"{where}loss_weight/{name}", np.array(weights[name]), np.array(caffe_weights[name]), 1e-6)


def _compare_forward(
    net: NetSpec, passes: Passes, params_before: Vector, archive: Mapping[str, Array], where: str, findings: Findings
) -> None:
    for kind in ("top", "blob"):
        for name, caffe_blob in members_under(archive, kind).items():
            findings.compare(f"{where}{kind}/{name}", passes.blobs[name], caffe_blob, findings.bounds.forward)
    if "loss" in archive:
        findings.compare(f"{where}loss", passes.loss, archive["loss"], findings.bounds.forward)
    moved = members_under(archive, "param_after")
    compare_params(net, passes.params, moved, f"{where}param_after/", findings.bounds.forward, findings)
    if not moved:
        findings.hold(
            claim=np.array_equal(passes.params, params_before),
            otherwise=f"{where}the forward pass moved parameters; Caffe's does not",
        )


def _compare_backward(
    net: NetSpec, passes: Passes, archive: Mapping[str, Array], where: str, findings: Findings
) -> None:
    written = {
        **{name: f"bottom_diff/{name}" for name in members_under(archive, "bottom_diff")},
        **{name: f"blob_diff/{name}" for name in members_under(archive, "blob_diff")},
    }
    for name, member in written.items():
        our_gradient = passes.blob_gradients[name]
        caffe_gradient = archive[member]
        # No path for a gradient is as good as zeros: Caffe fills the memory, TensorFlow leaves it out.
        our_gradient = np.zeros_like(caffe_gradient) if our_gradient is None else our_gradient
        findings.compare(f"{where}{member}", our_gradient, caffe_gradient, findings.bounds.backward)
    inner = members_under(archive, "blob")
    for name in (*members_under(archive, "input"), *inner):
        if name not in written:
            our_gradient = passes.blob_gradients[name]
            findings.hold(
                claim=our_gradient is None or not our_gradient.any(),
                otherwise=f"{where}blob {name} gets a gradient; Caffe gives it none",
            )
    diffs = members_under(archive, "param_diff")
    compare_params(net, passes.param_gradients, diffs, f"{where}param_diff/", findings.bounds.backward, findings)
