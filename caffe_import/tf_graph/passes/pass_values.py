"""Inputs and results of a pass' layers while the graph is traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import tensorflow as tf

from caffe_import.net.net_spec import LayerSpec
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.passes.places import Copies, Param

Tap = Callable[[str, Blob], Blob]
ParamTap = Callable[[LayerSpec, int, tf.Tensor], tf.Tensor]


@dataclass(frozen=True)
class PassInputs:
    """Inputs of every layer of a pass; ``overwritten`` is ``reads_overwritten_memory`` of the net.

    ``scales`` is ``fused_scales``; empty where each layer is tapped.
    """

    seed: tf.Tensor
    feeds: Mapping[str, tf.Tensor]
    overwritten: Mapping[int, str]
    tap: Tap | None
    param_tap: ParamTap | None
    scales: Mapping[str, LayerSpec]


@dataclass
class PassResults:
    """Results of a pass so far; each layer reads the results and adds to the results.

    Attributes:
        entries: The layout's blobs, statistics as the last layer left them.
        state: "layer/name" -> tensor, from the pass before where the layer has not run yet.
        blobs: Every blob that a layer has produced, its last content.
        updates: As ``ForwardResult.param_updates``.
        losses: The weighted loss of each top that has one.
        copies: What has been copied from one device to another.
        scaled_tops: Scale that its BatchNorm has computed -> its top.
    """

    entries: list[Param]
    state: dict[str, tf.Tensor]
    blobs: dict[str, Blob] = field(default_factory=dict)
    updates: dict[int, tf.Tensor] = field(default_factory=dict)
    losses: list[tf.Tensor] = field(default_factory=list)
    copies: Copies = field(default_factory=dict)
    scaled_tops: dict[str, Blob] = field(default_factory=dict)
