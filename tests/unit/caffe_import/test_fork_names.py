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
    expected = f'layer "x": type {name} belongs to {fork_of_type(name)}, not to Caffe 1.0; not supported here; known: '
    assert message.startswith(expected)
    assert "did you mean" not in message


def test_no_registered_type_is_said_to_be_a_forks() -> None:
    assert [name for name in registered_types() if fork_of_type(name)] == []


def test_no_field_of_caffe_is_said_to_be_a_forks() -> None:
    messages = caffe_pb2.DESCRIPTOR.message_types_by_name
    known = [(message, name) for message, type_ in messages.items() for name in type_.fields_by_name]
    assert ("LayerParameter", "convolution_param") in known
    assert [pair for pair in known if fork_of_field(*pair)] == []
