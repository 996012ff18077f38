"""Writes README.md's table of layer types from the registry; ``--check`` only says whether it is up to date."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from caffe_import.layers import activations
from caffe_import.net.layer_registry import LayerType, registered_types

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN = "<!-- layers: begin, written by docs/layer_table.py -->\n"
END = "<!-- layers: end -->"


def table() -> str:
    """Return the table: one line per registered type, sorted by name."""
    head = "| type | inputs | outputs | in place | what it is |\n| --- | --- | --- | --- | --- |\n"
    return head + "".join(_row(layer) for layer in registered_types().values())


def _row(layer: LayerType) -> str:
    module = inspect.getmodule(layer.define)
    described = layer.define if module is activations else module  # elsewhere a file has one type
    first_line = (described.__doc__ or "").splitlines()[0]
    text = first_line.partition(" Source: ")[0].removeprefix(f"{layer.name}: ").replace("|", "\\|")
    in_place = "yes" if layer.in_place else ""
    return f"| `{layer.name}` | {_count(layer.bottoms)} | {_count(layer.tops)} | {in_place} | {text} |\n"


def _count(bounds: tuple[int, int | None]) -> str:
    low, high = bounds
    if high is None:
        return f"{low} or more"
    return str(low) if low == high else f"{low} to {high}"


def updated(text: str) -> str:
    """Return README's text with the table of now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def main() -> int:
    """Rewrite the table, or check it."""
    text = README.read_text(encoding="utf-8")
    new = updated(text)
    if "--check" in sys.argv[1:]:
        if new != text:
            print("README.md: the table of layers is not what the registry says; run: make format", file=sys.stderr)
        return int(new != text)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
