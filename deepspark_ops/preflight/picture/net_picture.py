"""Picture of a net as SVG text for every browser, without external fonts, scripts or styles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from deepspark_ops.errors import ConfigError
from deepspark_ops.preflight.picture.net_layout import Layout, lay_out
from deepspark_ops.preflight.report import LayerReport, NetReport, PreflightReport
from deepspark_ops.run_paths import write_text_whole
from deepspark_ops.sizes import size_text

_MARGIN: Final = 24.0
_HEAD: Final = 44.0
_LINE: Final = 13.0
_PADDING: Final = 6.0
_RANK_GAP: Final = 26.0
_CHARACTER: Final = 6.3
"""Width of a character at 11 pixels, for the widest common fonts."""
_LONG_EDGE_RANKS: Final = 6
"""A longer edge from a data layer, in ranks, becomes a name in the box: its line would cross the drawing."""

_COLOURS: Final = {"data": "#dbeafe", "weights": "#fef3c7", "pool": "#dcfce7", "loss": "#fee2e2", "other": "#f3f4f6"}
_KINDS: Final = {
    "data": ("Data", "Input", "ImageData", "HDF5Data", "MemoryData", "DummyData", "WindowData", "Python"),
    "pool": ("Pooling", "SPP"),
    "loss": ("Accuracy", "SoftmaxWithLoss"),
}
_STYLE: Final = (
    "text{font:11px Helvetica,Arial,sans-serif;fill:#111827;text-anchor:middle}"
    ".name{font-weight:bold}.also{fill:#4b5563}.title{font-size:15px;font-weight:bold;text-anchor:start}"
    ".total{fill:#4b5563;text-anchor:start}rect.box{stroke:#6b7280}path{fill:none;stroke:#9ca3af;stroke-width:1.2}"
)


@dataclass
class _Box:
    """A layer with the in-place layers on the tops."""

    layer: LayerReport
    in_place: list[LayerReport] = field(default_factory=list)
    named_inputs: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        shapes = ", ".join(dict.fromkeys(_shape(shape) for shape in self.layer.top_shapes))
        lines = [self.layer.name, f"{self.layer.type} {shapes}".rstrip()]
        if self.in_place:
            lines.append("+ " + ", ".join(layer.type for layer in self.in_place))
        if self.named_inputs:
            lines.append("reads " + ", ".join(self.named_inputs))
        return lines

    def width(self) -> float:
        return max(len(line) for line in self.lines()) * _CHARACTER + 2 * _PADDING

    def height(self) -> float:
        return len(self.lines()) * _LINE + 2 * _PADDING


def write_picture(report: PreflightReport, path: Path | None) -> None:
    """Draw the report's first net to a file; nothing if no path is given or no net could be built.

    Raises:
        ConfigError: The file cannot be written.
    """
    if path is None or not report.nets:
        return
    try:
        write_text_whole(path, net_svg(report.nets[0]))
    except OSError as error:
        msg = f"svg={path}: cannot be written: {error.strerror}"
        raise ConfigError(msg) from error


def net_svg(net: NetReport) -> str:
    """Return the picture of a net as an SVG document: a box per layer with name, type and top shapes.

    In-place layers are shown in the box of the changed top's layer. Data flow from top to bottom.

    Example:
        >>> empty = NetReport(title="train", phase="TRAIN", name="a<b", batch_size=None, layers=(), data=(),
        ...                   n_params=0, flops=0, activation_bytes=0)
        >>> "a&lt;b" in net_svg(empty)
        True
    """
    boxes, edges = _boxes_and_edges(net.layers)
    layout = lay_out([box.width() for box in boxes], edges)
    tops, bottom = _row_tops(boxes, layout)
    heading = f"{net.name or 'net'}, {net.title} net"
    totals = f"{net.n_params:,} parameters, {net.flops / 1e9:,.2f} GFLOP and "
    totals += f"{size_text(net.activation_bytes)} of activations per forward pass"
    width = max(layout.width, len(totals) * _CHARACTER, len(heading) * 9) + 2 * _MARGIN
    shift = (width - layout.width) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{bottom + _MARGIN:.0f}" '
        f'viewBox="0 0 {width:.0f} {bottom + _MARGIN:.0f}" role="img">',
        f"<title>{escape(heading)}</title><style>{_STYLE}</style>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text class="title" x="{_MARGIN}" y="26">{escape(heading)}</text>',
        f'<text class="total" x="{_MARGIN}" y="42">{totals}</text>',
    ]
    for (upper, lower), route in zip(edges, layout.routes, strict=True):
        parts.append(_edge(boxes[upper], layout.centers[upper], route, layout.centers[lower], tops, shift))
    parts += [_box(box, x + shift, tops[rank]) for box, (x, rank) in zip(boxes, layout.centers, strict=True)]
    return "\n".join([*parts, "</svg>\n"])


def _boxes_and_edges(layers: Sequence[LayerReport]) -> tuple[list[_Box], list[tuple[int, int]]]:
    boxes: list[_Box] = []
    edges: dict[tuple[int, int], None] = {}
    makers: dict[str, int] = {}
    depths: list[int] = []
    for layer in layers:
        if layer.tops and set(layer.tops) <= set(layer.bottoms) and len(layer.bottoms) == 1:
            boxes[makers[layer.bottoms[0]]].in_place.append(layer)
            continue
        box = _Box(layer)
        read = {blob: makers[blob] for blob in layer.bottoms if blob in makers}
        depth = 1 + max((depths[maker] for maker in read.values()), default=-1)
        for blob, maker in read.items():
            if not boxes[maker].layer.bottoms and depth - depths[maker] > _LONG_EDGE_RANKS:
                box.named_inputs.append(blob)
            else:
                edges[maker, len(boxes)] = None
        makers.update(dict.fromkeys(layer.tops, len(boxes)))
        boxes.append(box)
        depths.append(depth)
    return boxes, list(edges)


def _row_tops(boxes: Sequence[_Box], layout: Layout) -> tuple[list[float], float]:
    """Return the y of each rank's upper edge, and the y below everything."""
    heights = [0.0] * layout.n_ranks
    for box, (_, rank) in zip(boxes, layout.centers, strict=True):
        heights[rank] = max(heights[rank], box.height())
    tops, y = [], _HEAD + _MARGIN
    for height in heights:
        tops.append(y)
        y += height + _RANK_GAP
    return tops, y - _RANK_GAP if heights else y


def _edge(
    upper: _Box,
    start: tuple[float, int],
    route: Sequence[tuple[float, int]],
    end: tuple[float, int],
    tops: Sequence[float],
    shift: float,
) -> str:
    """Draw an edge straight through the ranks, with bends in the gaps between ranks."""
    x, y = start[0] + shift, tops[start[1]] + upper.height()
    path = [f"M{x:.1f} {y:.1f}"]
    for to_x, rank in [*route, end]:
        from_y, to_y = tops[rank] - _RANK_GAP, tops[rank]
        middle = (from_y + to_y) / 2
        to_x += shift
        path.append(f"V{from_y:.1f}C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x = to_x
    return f'<path d="{"".join(path)}"/>'


def _box(box: _Box, x: float, y: float) -> str:
    lines = box.lines()
    classes = ["name", "type", *["also"] * (len(lines) - 2)]
    texts = "".join(
        f'<text class="{kind}" x="{x:.1f}" y="{y + _PADDING + (index + 0.78) * _LINE:.1f}">{escape(line)}</text>'
        for index, (line, kind) in enumerate(zip(lines, classes, strict=True))
    )
    width = box.width()
    return (
        f'<g><rect class="box" x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{box.height():.1f}" '
        f'rx="4" fill="{_COLOURS[_kind(box.layer)]}"/>{texts}</g>'
    )


def _kind(layer: LayerReport) -> str:
    if layer.type.endswith("Loss"):
        return "loss"
    for kind, types in _KINDS.items():
        if layer.type in types:
            return kind
    return "weights" if layer.n_params else "other"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(str(extent) for extent in shape)
