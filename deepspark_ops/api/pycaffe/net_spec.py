"""``caffe.NetSpec``, ``layers`` and ``params``: a net written in Python and turned into a prototxt's message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import ConfigError

_SUFFIX: Final = "_param"


def _param_fields() -> dict[str, str]:
    """Return layer type -> field of its options: ``Convolution`` -> ``convolution_param``."""
    fields = caffe_pb2.LayerParameter.DESCRIPTOR.fields
    return {
        field.message_type.name.removesuffix("Parameter"): field.name
        for field in fields
        if field.name.endswith(_SUFFIX) and field.message_type is not None
    }


class Top:
    """An output of a layer function: an argument of other layer functions."""

    def __init__(self, function: LayerCall, position: int) -> None:
        """Refer to the output of a call."""
        self.function = function
        self.position = position

    def to_proto(self) -> caffe_pb2.NetParameter:
        """Return the net of this output; layers and blobs get generated names."""
        return to_proto(self)


class LayerCall:
    """A layer: type, bottoms, options."""

    def __init__(self, type_name: str, bottoms: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        """Take what a layer function was called with.

        Raises:
            ConfigError: A bottom is no output of a layer function.
        """
        for bottom in bottoms:
            if not isinstance(bottom, Top):
                msg = f"{type_name}({bottom!r}): allowed: outputs of other layers; options are given by name"
                raise ConfigError(msg)
        layer_options = dict(options)
        self.type_name = type_name
        self.bottoms: tuple[Top, ...] = bottoms
        self.n_tops = int(layer_options.pop("ntop", 1))
        self.in_place = bool(layer_options.pop("in_place", False))
        self.name = layer_options.pop("name", None)
        self.options = layer_options
        if self.in_place and (len(bottoms) != 1 or self.n_tops != 1):
            msg = f"{type_name}: in_place=True needs one input and one output"
            raise ConfigError(msg)
        self.tops = tuple(Top(self, position) for position in range(self.n_tops))

    def add_to(self, net: caffe_pb2.NetParameter, names: _Names) -> None:
        """Write this layer once, behind the layers of the bottoms."""
        if self in names.written:
            return
        for bottom in self.bottoms:
            bottom.function.add_to(net, names)
        names.written.add(self)
        layer = net.layer.add(type=self.type_name, name=names.layer(self))
        layer.bottom.extend(names.blob(bottom) for bottom in self.bottoms)
        layer.top.extend(layer.bottom if self.in_place else [names.blob(top) for top in self.tops])
        for option, value in self.options.items():
            target = layer if option in layer.DESCRIPTOR.fields_by_name else self._own_options(layer, option)
            _assign(target, option, value)

    def _own_options(self, layer: caffe_pb2.LayerParameter, option: str) -> Any:
        field = _param_fields().get(self.type_name)
        options = None if field is None else getattr(layer, field)
        if options is None or option not in options.DESCRIPTOR.fields_by_name:
            allowed = [] if options is None else sorted(options.DESCRIPTOR.fields_by_name)
            msg = f"{self.type_name}: {option}: no such option; allowed: {', '.join(allowed) or 'those of every layer'}"
            raise ConfigError(msg)
        return options


class _Names:
    def __init__(self, blobs: Mapping[Top, str]) -> None:
        self.written: set[LayerCall] = set()
        self._blobs = dict(blobs)
        self._counts: dict[str, int] = {}

    def layer(self, call: LayerCall) -> str:
        if call.name:
            return str(call.name)
        if call.n_tops and call.tops[0] in self._blobs:
            return self._blobs[call.tops[0]]
        return self.blob(call.tops[0]) if call.n_tops == 1 and not call.in_place else self._count(call.type_name)

    def blob(self, top: Top) -> str:
        if top.function.in_place:
            return self.blob(top.function.bottoms[0])
        if top not in self._blobs:
            self._blobs[top] = self._count("blob" if top.function.n_tops > 1 else top.function.type_name)
        return self._blobs[top]

    def _count(self, word: str) -> str:
        self._counts[word] = self._counts.get(word, 0) + 1
        return f"{word}{self._counts[word]}"


def _assign(message: Any, name: str, value: Any) -> None:
    field = message.DESCRIPTOR.fields_by_name[name]
    is_list = field.is_repeated if hasattr(field, "is_repeated") else field.label == FieldDescriptor.LABEL_REPEATED
    values = list(value) if isinstance(value, list | tuple) else [value]
    try:
        if field.message_type is not None:
            for item in values:
                part = getattr(message, name).add() if is_list else getattr(message, name)
                for key, inner in item.items():
                    _assign(part, key, inner)
        elif is_list:
            getattr(message, name).extend(values)
        else:
            setattr(message, name, value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        msg = f"{message.DESCRIPTOR.name}.{name}={value!r}: {error}"
        raise ConfigError(msg) from None


def to_proto(*tops: Top) -> caffe_pb2.NetParameter:
    """Return the net of some outputs; layers and blobs get generated names."""
    return _net_of(tops, {})


def _net_of(tops: Iterable[Top], blobs: Mapping[Top, str]) -> caffe_pb2.NetParameter:
    net = caffe_pb2.NetParameter()
    names = _Names(blobs)
    for top in tops:
        top.function.add_to(net, names)
    return net


class NetSpec:
    """A net whose outputs have names: ``n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20)``."""

    def __init__(self) -> None:
        """Begin without layers."""
        object.__setattr__(self, "_named", {})

    def __setattr__(self, name: str, top: Top) -> None:
        """Name an output."""
        self._tops()[name] = top

    __setitem__ = __setattr__

    def __getattr__(self, name: str) -> Top:
        """Return the output with the name."""
        if name.startswith("_") or name not in self._tops():
            raise AttributeError(name)
        return self._tops()[name]

    def __getitem__(self, name: str) -> Top:
        """Return the output with the name."""
        return self._tops()[name]

    def to_proto(self) -> caffe_pb2.NetParameter:
        """Return the net.

        Raises:
            ConfigError: An option that a layer does not have, or a value that is none of its kind.
        """
        return _net_of(self._tops().values(), {top: name for name, top in self._tops().items()})

    def _tops(self) -> dict[str, Top]:
        tops: dict[str, Top] = object.__getattribute__(self, "_named")
        return tops


class Layers:
    """Layer functions by type: ``layers.Convolution(bottom, kernel_size=3)`` returns an output, or ``ntop`` of them."""

    def __getattr__(self, type_name: str) -> Any:
        """Return the function of a layer type."""
        if type_name.startswith("_"):
            raise AttributeError(type_name)

        def layer(*bottoms: Top, **options: Any) -> Any:
            call = LayerCall(type_name, bottoms, options)
            return call.tops[0] if call.n_tops == 1 else call.tops if call.n_tops else call

        return layer


class Parameters:
    """Named values of options: ``params.Pooling.MAX``."""

    def __getattr__(self, type_name: str) -> Any:
        """Return the message with the names."""
        message = getattr(caffe_pb2, f"{type_name}Parameter", None)
        if message is None:
            raise AttributeError(type_name)
        return message
