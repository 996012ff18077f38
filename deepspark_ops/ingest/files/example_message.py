"""``tf.train.Example``, read without TensorFlow: the fields are declared to protobuf here.

Source: TensorFlow, tensorflow/core/example/example.proto and feature.proto. A separate descriptor pool
holds the messages, so TensorFlow may be loaded in the same process.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

Value = bytes | list[int] | list[float]
"""The first bytes of a bytes list, or all numbers."""
_FIELD = descriptor_pb2.FieldDescriptorProto


def parse_example(record: bytes) -> dict[str, Value]:
    """Return the features of a serialized Example; features without a value are omitted.

    Raises:
        ValueError: The bytes are no Example.
    """
    try:
        message = _example_class().FromString(record)
    except DecodeError as error:
        msg = f"{len(record):,} bytes that are no tf.train.Example"
        raise ValueError(msg) from error
    features: dict[str, Value] = {}
    for name, feature in message.features.feature.items():
        kind = feature.WhichOneof("kind")
        values: Any = getattr(feature, kind).value if kind else ()
        if len(values):
            features[name] = values[0] if kind == "bytes_list" else list(values)
    return features


def kind_of(value: Value) -> str:
    """Return a feature's kind for messages.

    Example:
        >>> kind_of(b"abc"), kind_of([1.0, 2.0])
        ('bytes', '2 numbers')
    """
    return "bytes" if isinstance(value, bytes) else f"{len(value)} number{'s' if len(value) > 1 else ''}"


@cache
def _example_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")
    for name, kind in (
        ("BytesList", _FIELD.TYPE_BYTES),
        ("FloatList", _FIELD.TYPE_FLOAT),
        ("Int64List", _FIELD.TYPE_INT64),
    ):
        file.message_type.add(name=name).field.add(name="value", number=1, type=kind, label=_FIELD.LABEL_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), start=1):
        message = f".tensorflow.{name.title().replace('_', '')}"
        feature.field.add(name=name, number=number, type=_FIELD.TYPE_MESSAGE, type_name=message, label=1, oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=_FIELD.TYPE_MESSAGE, type_name=".tensorflow.Feature", label=1)
    features.field.add(
        name="feature", number=1, type=_FIELD.TYPE_MESSAGE, type_name=".tensorflow.Features.FeatureEntry", label=3
    )
    example = file.message_type.add(name="Example")
    example.field.add(name="features", number=1, type=_FIELD.TYPE_MESSAGE, type_name=".tensorflow.Features", label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))
