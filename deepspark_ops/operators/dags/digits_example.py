"""The example that the DAGs' forms start with: LeNet on handwritten digits."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path("examples", "digits")
_PACKAGE = Path(__file__).resolve().parents[2]


def digits_example(root: Path) -> dict[str, str | int]:
    """Return the form's values of the example; everything else has its default in the config models.

    Args:
        root: Folder that relative paths start from. Where it has no ``examples/digits``, as outside a checkout, the
            files inside the package are named.
    """
    folder = _FOLDER if (root / _FOLDER).is_dir() else _PACKAGE / _FOLDER
    return {
        "solver": str(folder / "lenet_solver.prototxt"),
        "source": str(folder / "digits8x8-images-idx3-ubyte.gz"),
        "resize_height": 28,
        "resize_width": 28,
        "max_pixel": 16,
    }
