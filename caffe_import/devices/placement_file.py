"""A placement as a text file: the device of each layer.

A line names layers and their device::

    # general lines first, exceptions after them
    conv*: 0
    fc?: split 0 1       # each device computes half of the outputs
    fc8: 1

- Before the last colon: a layer's name, or a pattern with ``*``, ``?`` and ``[a-z]`` as in file names; case counts.
- After the colon: a device, or ``split`` and the devices that share an InnerProduct's outputs equally.
- If several lines name a layer, the last line counts. ``#`` at a line's start or after a space begins a comment.
- A layer without a line is on the device of the first bottom (the first device of a split layer), so an activation
stays with the convolution. A layer without bottoms is on the device of the first placed reader.
- Split layers, inserted by Caffe, are never named, because Split layers copy nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from caffe_import.devices.compute_plan import Placement
from caffe_import.devices.unnamed_layers import place_all
from caffe_import.errors import PlacementError, did_you_mean
from caffe_import.file_access.regular_file import regular_text
from caffe_import.layers.inner_product import InnerProductOptions
from caffe_import.net.net_spec import LayerSpec, NetSpec

_FORM: Final = "expected 'LAYERS: DEVICE' or 'LAYERS: split DEVICE DEVICE ...'"
_SHOWN_LAYERS: Final = 12


@dataclass(frozen=True)
class PlacementLine:
    """One line of a file.

    Attributes:
        number: 1-based.
        pattern: What names the layers.
        devices: One; of a split layer two or more, in the order of their shares.
    """

    number: int
    pattern: str
    devices: tuple[int, ...]

    def names(self, layer: LayerSpec) -> bool:
        """Does the line name the layer?"""
        return layer.type != "Split" and (layer.name == self.pattern or fnmatchcase(layer.name, self.pattern))


def read_placement(path: Path, net: NetSpec, n_devices: int) -> Placement:
    """Return the placement that a file gives the layers of ``net``.

    Args:
        path: The file.
        net: The net to lay out.
        n_devices: Devices are numbered 0 to n_devices - 1.

    Raises:
        PlacementError: The file cannot be read, or the first line that is wrong: its form, a pattern that names no
            layer, a device that is not there, a split that the layer cannot have.
    """
    try:
        text = regular_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no UTF-8 text"
        msg = f"placement {path}: {reason}; {_FORM}, a line each"
        raise PlacementError(msg, path=str(path)) from error
    return place_layers(parse_placement(text, path=str(path)), net, n_devices, path=str(path))


def parse_placement(text: str, *, path: str) -> tuple[PlacementLine, ...]:
    r"""Return the lines of a file; ``path`` is what errors call it.

    Raises:
        PlacementError: A line of another form, or a file without any.

    Example:
        >>> parse_placement("conv*: 0  # early layers\nfc6: split 0 1", path="p")[1]
        PlacementLine(number=2, pattern='fc6', devices=(0, 1))
    """
    lines = tuple(_parsed_lines(text, path))
    if not lines:
        msg = f"{path}: places no layer; {_FORM}, a line each"
        raise PlacementError(msg, path=path)
    return lines


def _parsed_lines(text: str, path: str) -> Iterator[PlacementLine]:
    for number, written in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*", "", written).strip()
        if not line:
            continue
        line_match = re.fullmatch(r"(?P<pattern>.*\S)\s*:\s*(?P<one>\d{1,9}|split(?P<many>(\s+\d{1,9})+))", line)
        if line_match is None:
            raise _refusal(path, number, f"found '{line}'; {_FORM}")
        devices = tuple(int(word) for word in (line_match["many"] or line_match["one"]).split())
        if line_match["many"] and (len(devices) < 2 or len(set(devices)) < len(devices)):
            raise _refusal(path, number, f"'{line}' splits over too few devices; name two or more, each once")
        yield PlacementLine(number, line_match["pattern"], devices)


def place_layers(lines: Sequence[PlacementLine], net: NetSpec, n_devices: int, *, path: str) -> Placement:
    """Return the placement that the lines give the layers of ``net``.

    Raises:
        PlacementError: As ``read_placement``.
    """
    named: dict[str, PlacementLine] = {}
    for line in lines:
        _check_devices(line, n_devices, path)
        layers = [layer for layer in net.layers if line.names(layer)]
        if not layers:
            raise _names_nothing(line, net, path)
        named.update((layer.name, line) for layer in layers)
    for line in lines:
        if line not in named.values():
            finding = (
                f"later lines name every layer that '{line.pattern}' names; the last line counts: put it after them"
            )
            raise _refusal(path, line.number, finding)
    for layer in net.layers:
        if layer.name in named and len(named[layer.name].devices) > 1:
            _check_split(layer, named[layer.name], net, path)
    devices = {name: line.devices for name, line in named.items()}
    return place_all(devices, net, n_devices)


def _check_devices(line: PlacementLine, n_devices: int, path: str) -> None:
    for device in line.devices:
        if device >= n_devices:
            allowed_devices = "the only one is 0" if n_devices == 1 else f"allowed: 0 to {n_devices - 1}"
            finding = f"there is no device {device}: {allowed_devices}; or give gpus_per_worker={device + 1}"
            raise _refusal(path, line.number, finding)


def _names_nothing(line: PlacementLine, net: NetSpec, path: str) -> PlacementError:
    layer_names = [layer.name for layer in net.layers if layer.type != "Split"]
    shown = ", ".join(layer_names[:_SHOWN_LAYERS])
    more = f" and {len(layer_names) - _SHOWN_LAYERS} more" if len(layer_names) > _SHOWN_LAYERS else ""
    finding = (
        f"'{line.pattern}' names no layer of the training net{did_you_mean(line.pattern, layer_names)}; its layers"
    )
    return _refusal(path, line.number, f"{finding}: {shown}{more}", allowed=layer_names)


def _check_split(layer: LayerSpec, line: PlacementLine, net: NetSpec, path: str) -> None:
    options = layer.definition.options
    layer_title = f'layer "{layer.name}" ({layer.type})'
    if not isinstance(options, InnerProductOptions):
        finding = f"{layer_title} cannot be split; allowed: InnerProduct, whose outputs are computed independently"
        raise _refusal(path, line.number, finding)
    if options.n_outputs < len(line.devices):
        finding = (
            f"{layer_title} has {options.n_outputs} outputs, fewer than the {len(line.devices)} devices to share them"
        )
        raise _refusal(path, line.number, finding)
    own_entries = {entry for (name, _), entry in net.params.uses.items() if name == layer.name}
    sharers = [name for (name, _), entry in net.params.uses.items() if entry in own_entries and name != layer.name]
    if sharers:
        raise _refusal(path, line.number, f'{layer_title} shares its weights with "{sharers[0]}" and cannot be split')


def format_placement(placement: Placement, net: NetSpec) -> str:
    """Return the text of a file with this placement of ``net``, one layer per line.

    Example:
        >>> from caffe_import.files.prototxt import parse_net
        >>> from caffe_import.net.net_spec import build_net_spec
        >>> text = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 } } }'
        >>> text += ' layer { name: "#1" type: "ReLU" bottom: "x" top: "y" }'
        >>> net = build_net_spec(parse_net(text), phase="TRAIN")
        >>> print(format_placement(Placement(2, {"x": 0, "#1": 1}), net))
        # layer: device
        x: 0
        ?1: 1
        <BLANKLINE>
    """
    lines = ["# layer: device"]
    for name in dict.fromkeys(layer.name for layer in net.layers if layer.type != "Split"):
        where = placement.split.get(name)
        devices = f"split {' '.join(map(str, where))}" if where else str(placement.device_of[name])
        lines.append(f"{_as_pattern(name)}: {devices}")
    return "\n".join(lines) + "\n"


def _as_pattern(name: str) -> str:
    """Return a pattern for the layer; characters that a placement file cannot hold become ``?``."""
    return re.sub(r"[#\s\[]", "?", name) if re.search(r"[#\s]", name) else name


def _refusal(path: str, number: int, finding: str, *, allowed: Collection[str] = ()) -> PlacementError:
    return PlacementError(f"{path}:{number}: {finding}", path=path, line=number, allowed=allowed)
