"""A layer refuses bottoms of an unusable rank or size: every type, with default options."""

from __future__ import annotations

import pytest

from caffe_import.errors import NetError
from caffe_import.net.layer_registry import find_layer_type, registered_types
from tests.reference.layer_check import net_of

pytestmark = pytest.mark.tf

SHAPES = [(), (0,), (3,), (2, 0), (2, 3), (2, 3, 4), (2, 0, 4, 4), (0, 3, 4, 4), (2, 3, 4, 4), (2, 3, 2, 2, 2)]


@pytest.mark.parametrize("name", registered_types())
def test_only_the_projects_errors(name: str) -> None:
    kind = find_layer_type(name, layer="x")
    low, high = kind.bottoms
    most_tops = kind.tops[0] if kind.tops[1] is None else kind.tops[1]
    for n_bottoms in range(max(low, 1), (low + 2 if high is None else high) + 1):
        for n_tops in {max(kind.tops[0], 1), max(most_tops, 1)}:
            tops = " ".join(f'top: "n{at}"' for at in range(n_tops))
            for bottoms in {(*[shape] * (n_bottoms - 1), last) for shape in SHAPES for last in SHAPES}:
                try:
                    net = net_of(f'type: "{name}" {tops}', bottoms)
                except NetError:
                    continue
                assert len(net.layers[-1].definition.top_shapes) == len(net.layers[-1].tops)
