"""Pairs of a BatchNorm and a Scale that one kernel computes: a pass less over the blob, forward and backward."""

from __future__ import annotations

from dataclasses import replace

from caffe_import.devices.compute_plan import PLAIN, ComputePlan
from caffe_import.devices.layer_runs import layer_runs
from caffe_import.layers.batch_norm import BatchNormOptions
from caffe_import.layers.scale import ScaleOptions
from caffe_import.net.net_spec import LayerSpec, NetSpec


def fused_scales(net: NetSpec, plan: ComputePlan = PLAIN) -> dict[str, LayerSpec]:
    """Return BatchNorm -> the Scale that the graph computes together with the BatchNorm.

    Only the Scale reads the BatchNorm's top: with a second reader the reader of the top is a Split. Images alone, a
    factor for each channel, and both layers on one device and in one segment of ``plan``.
    """
    runs = layer_runs(net, plan.recompute) if plan.recompute else ()
    run_of = {layer.name: number for number, run in enumerate(runs) for _, layer in run.layers}
    device_of = plan.placement.device_of if plan.placement else {}
    return {
        name: scale
        for name, scale in _pairs(net).items()
        if run_of.get(name) == run_of.get(scale.name) and device_of.get(name) == device_of.get(scale.name)
    }


def layers_as_computed(net: NetSpec) -> tuple[LayerSpec, ...]:
    """Return the net's layers with the traits of their computation on one device, in one segment.

    Of a pair the Scale reads the BatchNorm's bottom: by the kernel of BatchNorm or, with stored statistics, as a Scale.
    """
    pairs = _pairs(net)
    batch_norms = {scale.name: name for name, scale in pairs.items()}
    kernels = {
        layer.name: layer.traits
        for layer in net.layers
        if isinstance(layer.definition.options, BatchNormOptions) and not layer.definition.options.use_global_stats
    }
    layers = []
    for layer in net.layers:
        traits = layer.traits
        if layer.name in pairs:
            traits = replace(traits, gradient_keeps="nothing", is_identity=True)
        traits = kernels.get(batch_norms.get(layer.name, ""), traits)
        is_changed = traits is not layer.traits
        layers.append(replace(layer, definition=replace(layer.definition, traits=traits)) if is_changed else layer)
    return tuple(layers)


def _pairs(net: NetSpec) -> dict[str, LayerSpec]:
    pairs: dict[str, LayerSpec] = {}
    entries, uses = net.params.entries, net.params.uses
    statistics = {key for key, position in uses.items() if entries[position].kind == "statistic"}
    makers: dict[str, LayerSpec] = {}  # blob -> the BatchNorm that made the blob's present content
    for layer in net.layers:
        batch_norm = makers.get(layer.bottoms[0]) if layer.bottoms else None
        # A shared statistic moves between the two layers.
        is_free = not {(layer.name, 0), (layer.name, 1)} & statistics
        if batch_norm is not None and _is_per_channel(layer) and is_free:
            pairs[batch_norm.name] = layer
        for blob in (*layer.bottoms, *layer.tops):
            makers.pop(blob, None)
        if layer.type == "BatchNorm" and len(layer.bottom_shapes[0]) == 4 and not any(layer.loss_weights):
            makers[layer.tops[0]] = layer
    return pairs


def _is_per_channel(layer: LayerSpec) -> bool:
    options = layer.definition.options
    if not isinstance(options, ScaleOptions) or len(layer.bottoms) != 1:
        return False
    return options.axis == 1 and layer.definition.blobs[0].shape == layer.bottom_shapes[0][1:2]
