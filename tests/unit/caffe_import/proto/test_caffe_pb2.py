"""The schema holds every fact of Caffe 1.0's format; forks' fields are further fields without collisions."""

from __future__ import annotations

import json

import pytest
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from caffe_import.proto import caffe_pb2, is_repeated
from tests.paths import FIXTURES

FACTS = json.loads((FIXTURES / "caffe_fields.json").read_text(encoding="utf-8"))
PLAIN = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in ("double", "float", "int64", "int32", "uint32", "bool", "string", "bytes")
}
LABELS = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional",
    FieldDescriptorProto.LABEL_REQUIRED: "required",
    FieldDescriptorProto.LABEL_REPEATED: "repeated",
}
FORK_FIELDS = {
    ("LayerParameter", "upsample_param", 150),
    ("LayerParameter", "shuffle_channel_param", 164),
    ("LayerParameter", "permute_param", 202),
    ("LayerParameter", "norm_param", 206),
    ("LayerParameter", "interp_param", 1000),
    ("PoolingParameter", "ceil_mode", 1000),
}


def type_of(field: FieldDescriptor) -> str:
    kind = field.message_type or field.enum_type
    return kind.full_name.removeprefix("caffe.") if kind else PLAIN[field.type]


def label_of(field: FieldDescriptor) -> str:
    # Not the descriptor's own word: protobuf 5 has no is_required, and 7 warns of label.
    message = DescriptorProto()
    field.containing_type.CopyToProto(message)
    (label,) = (descriptor.label for descriptor in message.field if descriptor.name == field.name)
    return LABELS[label]


def default_of(field: FieldDescriptor) -> object:
    return field.enum_type.values_by_number[field.default_value].name if field.enum_type else field.default_value


def written_default(field: FieldDescriptor, text: str) -> object:
    if field.type == FieldDescriptor.TYPE_BOOL:
        return text == "true"
    if field.enum_type or field.type == FieldDescriptor.TYPE_STRING:
        return text
    return float(text)


@pytest.mark.parametrize("message", FACTS["messages"])
def test_every_field_of_caffe_is_as_it_was(message: str) -> None:
    fields = caffe_pb2.DESCRIPTOR.message_types_by_name[message].fields_by_name
    for fact in FACTS["messages"][message]:
        field = fields[fact["name"]]
        assert (field.number, label_of(field), type_of(field)) == (fact["number"], fact["label"], fact["type"])
        assert is_repeated(field) == (fact["label"] == "repeated")
        assert field.has_default_value == ("default" in fact)
        if "default" in fact:
            expected = written_default(field, fact["default"])
            assert default_of(field) == (pytest.approx(expected) if isinstance(expected, float) else expected)


@pytest.mark.parametrize("name", FACTS["enums"])
def test_every_enum_of_caffe_is_as_it_was(name: str) -> None:
    outer, _, inner = name.rpartition(".")
    holder = caffe_pb2.DESCRIPTOR.message_types_by_name[outer] if outer else caffe_pb2.DESCRIPTOR
    kind: EnumDescriptor = holder.enum_types_by_name[inner]
    assert {value.name: value.number for value in kind.values} == FACTS["enums"][name]


def test_forks_add_exactly_these_fields_to_caffes_messages() -> None:
    added_fields = {
        (name, field.name, field.number)
        for name, facts in FACTS["messages"].items()
        for field in caffe_pb2.DESCRIPTOR.message_types_by_name[name].fields
        if field.name not in {fact["name"] for fact in facts}
    }
    assert added_fields == FORK_FIELDS
