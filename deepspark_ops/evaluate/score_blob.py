"""Which blob of a net holds the class scores, and which the true labels: read off the net, never asked of the user."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.errors import NetError
from caffe_import.net.net_spec import LayerSpec, NetSpec

_NEEDED = (
    "needed: a SoftmaxWithLoss or Accuracy layer (bottoms: scores, labels), or a Softmax layer at the end of the net"
)


@dataclass(frozen=True)
class ScoreBlob:
    """Where a net's class scores are.

    Attributes:
        name: Blob of shape (N, n_classes), axes of length 1 behind it allowed; the name that the user wrote.
        n_classes: Length of one score vector.
        is_probability: Does a Softmax layer make the blob? Else its softmax is the probability.
        label: Blob of a data layer that holds the true labels; None if the net has none.
        ignore_label: Samples of this label do not count, as in the net's own loss.
        found_by: The layer that it was found by, ``layer "loss" (SoftmaxWithLoss)``.
    """

    name: str
    n_classes: int
    is_probability: bool
    label: str | None
    ignore_label: int | None
    found_by: str


def find_score_blob(net: NetSpec) -> ScoreBlob:
    """Find the class scores: bottom 0 of SoftmaxWithLoss, else of Accuracy, else a Softmax that nothing consumes.

    Of several losses (GoogLeNet has three) the one with the largest weight decides; of equal ones the last.

    Raises:
        NetError: The net has no class scores (a regression, an autoencoder), or more than one vector per sample.
    """
    losses = [layer for layer in net.layers if layer.type == "SoftmaxWithLoss"]
    if losses:
        chosen = max(reversed(losses), key=lambda layer: layer.loss_weights[0])
        parameter = chosen.message.loss_param
        return _from_labelled(net, chosen, parameter.ignore_label if parameter.HasField("ignore_label") else None)
    accuracies = [layer for layer in net.layers if layer.type == "Accuracy"]
    if accuracies:
        chosen = accuracies[-1]
        option = chosen.message.accuracy_param
        return _from_labelled(net, chosen, option.ignore_label if option.HasField("ignore_label") else None)
    ends = [layer for layer in net.layers if layer.type == "Softmax" and layer.tops[0] in net.outputs]
    if ends:
        chosen = ends[-1]
        return ScoreBlob(
            name=chosen.tops[0],
            n_classes=_n_classes(net, chosen, chosen.tops[0]),
            is_probability=True,
            label=_unused_label(net),
            ignore_label=None,
            found_by=_named(chosen),
        )
    outputs = ", ".join(f'"{name}"' for name in net.outputs) or "none"
    msg = f'net "{net.name}" ({net.phase}) has no class scores, its outputs are {outputs}; {_NEEDED}'
    raise NetError(msg)


def user_name(net: NetSpec, blob: str) -> str:
    """Return the blob that an automatic Split layer copied into ``blob``, else ``blob`` itself."""
    producers = {top: layer for layer in net.layers for top in layer.tops}
    while blob in producers and producers[blob].type == "Split":
        blob = producers[blob].bottoms[0]
    return blob


def _from_labelled(net: NetSpec, layer: LayerSpec, ignore_label: int | None) -> ScoreBlob:
    name = user_name(net, layer.bottoms[0])
    label = user_name(net, layer.bottoms[1])
    if label not in net.inputs:
        msg = f'{_named(layer)}: its labels "{label}" are computed by the net; allowed: a top of a data layer'
        raise NetError(msg, layer=layer.name)
    return ScoreBlob(
        name=name,
        n_classes=_n_classes(net, layer, name),
        is_probability=_is_made_by_softmax(net, name),
        label=label,
        ignore_label=ignore_label,
        found_by=_named(layer),
    )


def _is_made_by_softmax(net: NetSpec, blob: str) -> bool:
    makers = [layer for layer in net.layers if blob in layer.tops]
    return bool(makers) and makers[-1].type == "Softmax"


def _n_classes(net: NetSpec, layer: LayerSpec, blob: str) -> int:
    shape = net.blob_shapes[blob]
    if len(shape) < 2 or any(extent != 1 for extent in shape[2:]):
        msg = (
            f'{_named(layer)}: class scores "{blob}" have shape {shape}; allowed: (N, classes), one vector per sample '
            "(a net with a score per pixel is not evaluated)"
        )
        raise NetError(msg, layer=layer.name)
    return shape[1]


def _unused_label(net: NetSpec) -> str | None:
    """Return the second top of the first data layer: Caffe's data layers put the label there."""
    for layer in net.layers:
        if layer.definition.is_data:
            return layer.tops[1] if len(layer.tops) > 1 else None
    return None


def _named(layer: LayerSpec) -> str:
    return f'layer "{layer.name}" ({layer.type})'
