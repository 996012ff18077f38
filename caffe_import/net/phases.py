"""The layers of a net in a phase, at a level, in a set of stages (Caffe's FilterNet)."""

from __future__ import annotations

from collections.abc import Collection

from caffe_import.errors import NetError
from caffe_import.net.layer_registry import Phase
from caffe_import.proto import caffe_pb2


def filter_layers(
    net: caffe_pb2.NetParameter, *, phase: Phase, level: int = 0, stages: Collection[str] = ()
) -> caffe_pb2.NetParameter:
    """Return a copy of ``net`` with the layers of this state, and with the state.

    A layer with include rules is kept if any matches, a layer with exclude rules if none matches, a layer without rules
    always. The net's own ``state`` adds stages, and the level if ``level`` is 0 (Net::FilterNet).

    Raises:
        NetError: A layer has both include and exclude rules.
    """
    state = caffe_pb2.NetState(
        phase=phase,
        level=level or net.state.level,
        stage=dict.fromkeys([*net.state.stage, *stages]),
    )
    filtered = caffe_pb2.NetParameter()
    filtered.CopyFrom(net)
    filtered.ClearField("layer")
    filtered.state.CopyFrom(state)
    filtered.layer.extend(layer for layer in net.layer if _is_kept(layer, state))
    return filtered


def left_out_tops(net: caffe_pb2.NetParameter, filtered: caffe_pb2.NetParameter) -> dict[str, str]:
    """Return the name of a left-out layer for each blob that no layer of the filtered net makes."""
    makers = _makers(net)
    return {blob: makers[blob] for blob in makers.keys() - _makers(filtered).keys()}


def _makers(net: caffe_pb2.NetParameter) -> dict[str, str]:
    """Return blob -> a layer that makes the blob; a layer in place makes none."""
    return {blob: layer.name for layer in net.layer for blob in layer.top if blob not in layer.bottom}


def _is_kept(layer: caffe_pb2.LayerParameter, state: caffe_pb2.NetState) -> bool:
    if len(layer.include) > 0 and len(layer.exclude) > 0:
        msg = f'layer "{layer.name}" has include and exclude rules; keep the rules of one kind'
        raise NetError(msg, layer=layer.name)
    if len(layer.include) > 0:
        return any(meets_rule(state, rule) for rule in layer.include)
    return not any(meets_rule(state, rule) for rule in layer.exclude)


def meets_rule(state: caffe_pb2.NetState, rule: caffe_pb2.NetStateRule) -> bool:
    """Return whether every field that the rule sets holds for the state (Net::StateMeetsRule).

    Example:
        >>> rule = caffe_pb2.NetStateRule(phase=caffe_pb2.TEST, not_stage=["deploy"])
        >>> meets_rule(caffe_pb2.NetState(phase=caffe_pb2.TEST), rule)
        True
    """
    if rule.HasField("phase") and rule.phase != state.phase:
        return False
    if rule.HasField("min_level") and state.level < rule.min_level:
        return False
    if rule.HasField("max_level") and state.level > rule.max_level:
        return False
    return all(stage in state.stage for stage in rule.stage) and not any(
        stage in state.stage for stage in rule.not_stage
    )
