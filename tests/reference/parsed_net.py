"""A net from its prototxt text, for tests whose net is a few lines."""

from __future__ import annotations

from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import NetSpec, Phase, build_net_spec


def net_of(text: str, phase: Phase = "TRAIN") -> NetSpec:
    """Return the net of a prototxt's text."""
    return build_net_spec(parse_net(text), phase=phase)
