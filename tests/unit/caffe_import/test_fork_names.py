"""Names of Caffe's forks: said to be theirs, and never said of what this importer knows."""

import pytest

from caffe_import.errors import NetError
from caffe_import.fork_names import fork_of_field, fork_of_type
from caffe_import.net.layer_registry import find_layer_type, registered_types
from caffe_import.proto import caffe_pb2


@pytest.mark.parametrize("name", ["ROIPooling", "SmoothL1Loss", "Proposal", "BN", "PriorBox", "PSROIPooling"])
def test_type_of_a_fork_is_called_that_and_no_other_is_guessed(name: str) -> None:
    with pytest.raises(NetError) as caught:
        find_layer_type(name, layer="x")
    message = str(caught.value)
    expected = f'layer "x": type {name} belongs to {fork_of_type(name)}, not to Caffe 1.0; not supported here; '
    assert message == expected + "add it as a layer of your own: docs/guides/own_layer.md"


def test_unknown_type_names_the_nearest_or_the_way_to_add_it() -> None:
    with pytest.raises(NetError, match=r'"Poling"; did you mean "Pooling"[?]$'):
        find_layer_type("Poling", layer="x")
    with pytest.raises(
        NetError,
        match=r"; docs/reference/layers\.md has all \d+ types; add it as a layer of your own: .*md$",
    ):
        find_layer_type("QuartetXyz", layer="x")
    with pytest.raises(NetError, match=r'; did you mean "ImageData".*[?]; add it as a layer of your own: '):
        find_layer_type("ImageLabelmapData", layer="x")


def test_no_registered_type_is_said_to_be_a_forks() -> None:
    assert [name for name in registered_types() if fork_of_type(name)] == []


def test_no_field_of_caffe_is_said_to_be_a_forks() -> None:
    messages = caffe_pb2.DESCRIPTOR.message_types_by_name
    caffe_fields = [(message, name) for message, type_ in messages.items() for name in type_.fields_by_name]
    assert ("LayerParameter", "convolution_param") in caffe_fields
    assert [pair for pair in caffe_fields if fork_of_field(*pair)] == []
