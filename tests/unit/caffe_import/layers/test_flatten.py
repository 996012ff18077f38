"""Flatten against loops."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import check_layer, refusal, spread_values

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ("", (2, 24)),
        ("axis: 0 end_axis: 1", (6, 4, 2)),
        ("axis: 2", (2, 3, 8)),
        ("end_axis: -2", (2, 12, 2)),
        ("axis: 2 end_axis: 1", (2, 3, 1, 4, 2)),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_flatten(options: str, shape: tuple[int, ...], channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "Flatten" flatten_param {{ {options} }}',
        lambda x: [x.reshape(shape)],
        [spread_values(2, 3, 4, 2)],
        channels_last=channels_last,
    )


def test_flatten_refuses_an_end_before_its_begin() -> None:
    message = refusal('top: "n0" type: "Flatten" flatten_param { axis: 2 end_axis: 0 }', (2, 3, 4))
    assert message.endswith("flatten_param.end_axis=0 is more than one before axis=2")
