"""Nets whose numbers, names and types were changed at random build, or are refused by the importer's own error.

In bounded time and memory: a shape of 2 GB or more is refused before anything of that size is made.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffe_import.errors import CaffeImportError
from caffe_import.files.prototxt import parse_net
from caffe_import.net.layer_registry import registered_types
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.proto import caffe_pb2
from tests.paths import FIXTURES

TEXTS = [
    path.read_text(encoding="utf-8")
    for folder in ("caffe/layers", "caffe/nets", "nets")
    for path in sorted((FIXTURES / folder).glob("*.prototxt"))
]
NUMBER = re.compile(r"(?<=: )-?[0-9.]+")
TYPE = re.compile(r'(?<=type: )"\w+"')
BLOB = re.compile(r'(?<=bottom: )"\w+"')
NUMBERS = ["0", "-1", "1", "2", "3", "7", "255", "65536", "2147483647", "4294967295", "-2147483648", "1e30", "nan"]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 3))):
        pattern, replacements = draw(
            st.sampled_from(
                [
                    (NUMBER, st.sampled_from(NUMBERS)),
                    (TYPE, st.sampled_from(sorted(registered_types())).map('"{}"'.format)),
                    (BLOB, st.sampled_from(BLOB.findall(text) or ['"x"'])),
                ]
            )
        )
        matches = list(pattern.finditer(text))
        if matches:
            match = draw(st.sampled_from(matches))
            text = text[: match.start()] + draw(replacements) + text[match.end() :]
    return text


def built(text: str) -> NetSpec | CaffeImportError:
    def sample_shapes(_: caffe_pb2.LayerParameter) -> tuple[tuple[int, ...], ...]:
        return ((3, 256, 256), ())

    try:
        return build_net_spec(parse_net(text), phase="TRAIN", sample_shapes=sample_shapes)
    except CaffeImportError as error:
        return error


@settings(max_examples=150)
@given(mutated())
def test_mutated_net_builds_or_is_refused(text: str) -> None:
    outcome = built(text)
    if isinstance(outcome, NetSpec):
        assert all(0 <= extent < 2**31 for shape in outcome.blob_shapes.values() for extent in shape)
        assert all(entry.size < 2**31 for entry in outcome.params.entries)
    else:
        assert str(outcome)


@pytest.mark.parametrize(
    "text",
    [
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 65536 dim: 65536 } } }',
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 9223372036854775807 dim: 8 } } }',
        'layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2147483647 dim: 2 } } }',
        'layer { name: "x" type: "Parameter" top: "x" parameter_param { shape { dim: 100000 dim: 100000 } } }',
    ],
)
def test_two_gigabytes_are_refused_unmade(text: str) -> None:
    outcome = built(text)
    assert isinstance(outcome, CaffeImportError)
    assert "allowed: at most" in str(outcome)
