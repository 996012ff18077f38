import pytest

from caffe_import.errors import PrototxtError
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.other_names import _FIELDS, caffe_name
from caffe_import.proto import caffe_pb2

SOLVER_FIELDS = list(caffe_pb2.SolverParameter.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("base_learning_rate: 0.1", "Caffe calls it base_lr"),
        ("learning_rate: 0.1", "Caffe calls it base_lr"),
        ("learning_rate_policy: 0.1", "Caffe calls it lr_policy"),
        ("maximum_iterations: 9", "Caffe calls it max_iter"),
        ("epochs: 9", "Caffe calls it max_iter, counted in minibatches"),
        ("batch_size: 9", "Caffe calls it batch_size too, and the data layer of the net has it"),
        ("base_rl: 0.1", 'did you mean "base_lr"?'),
    ],
)
def test_a_name_of_another_framework_in_a_solver_gets_caffes_name(written: str, hint: str) -> None:
    with pytest.raises(PrototxtError) as caught:
        parse_solver(written)
    assert str(caught.value).splitlines()[-1] == f"  {hint}"


def test_a_name_of_another_framework_in_a_layer_gets_caffes_name() -> None:
    with pytest.raises(PrototxtError, match=r"Caffe calls it num_output$"):
        parse_net('layer { name: "c" type: "Convolution" convolution_param { filters: 3 } }')


@pytest.mark.parametrize("name", ["zzz", "iterations", "lrp", "b", ""])
def test_other_words_get_no_name(name: str) -> None:
    assert caffe_name(name, SOLVER_FIELDS) == ""


def test_each_listed_name_is_unknown_to_caffe_and_each_field_is_known() -> None:
    messages = [value for value in vars(caffe_pb2).values() if hasattr(value, "DESCRIPTOR")]
    known = {name for message in messages for name in getattr(message.DESCRIPTOR, "fields_by_name", ())}
    assert {field for fields in _FIELDS.values() for field in fields} <= known
    assert not _FIELDS.keys() & set(SOLVER_FIELDS)
