"""Errors of the importer: a user's mistake in a file: one message with place, finding and remedy.

CaffeImportError            base; any fault of a Caffe file, or of the machine for the computation
  PrototxtError             text or binary that does not parse, or a field value that is not allowed
  NetError                  a net that parses but cannot be built: wiring, shapes, unknown layer types
  PlacementError            a placement file that does not parse or does not fit the net or its devices
  WeightsError              a weights, state or mean file that does not fit the net
  DataSourceError           a source that a data layer names: missing, damaged, or of another shape than asked for
  ForbiddenPathError        a file that a net or a solver names outside of the folders that it may name
  DeviceError               a device that was asked for and is not there
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class CaffeImportError(ValueError):
    """A Caffe file that cannot be used; ``str(error)`` is the whole message for the user."""


class PrototxtError(CaffeImportError):
    """A prototxt that does not parse or holds a wrong value.

    Attributes:
        path: The file, as the user gave it.
        line: 1-based line, 0 where no single place is to blame.
        column: 1-based column, 0 likewise.
        allowed: What would have been accepted, may be empty.
    """

    def __init__(
        self, message: str, *, path: str = "", line: int = 0, column: int = 0, allowed: Iterable[str] = ()
    ) -> None:
        """Keep the fields; ``message`` is the whole text for the user."""
        super().__init__(message)
        self.path = path
        self.line = line
        self.column = column
        self.allowed = tuple(allowed)


class NetError(CaffeImportError):
    """A net that parses but cannot be built.

    Attributes:
        layer: Name of the layer to blame, empty if none.
        field_name: The layer's own field to blame, empty if it is the layer as a whole.
    """

    def __init__(self, message: str, *, layer: str = "", field_name: str = "") -> None:
        """Keep the names; ``message`` is the whole text for the user."""
        super().__init__(message)
        self.layer = layer
        self.field_name = field_name


class PlacementError(CaffeImportError):
    """A placement file that does not parse or does not fit the net or the devices.

    Attributes:
        path: The file, as the user gave it.
        line: 1-based line, 0 where no single line is to blame.
        allowed: What would have been accepted, may be empty.
    """

    def __init__(self, message: str, *, path: str = "", line: int = 0, allowed: Iterable[str] = ()) -> None:
        """Keep the fields; ``message`` is the whole text for the user."""
        super().__init__(message)
        self.path = path
        self.line = line
        self.allowed = tuple(allowed)


class WeightsError(CaffeImportError):
    """A weights, solver-state or mean file that is damaged or belongs to another net."""


class DataSourceError(CaffeImportError):
    """Data of a layer (LMDB, HDF5, image list, a Datum): missing, damaged or of an unexpected shape."""


class ForbiddenPathError(CaffeImportError):
    """A net, a solver or a list names a file outside of the allowed folders (``files.allowed_roots``)."""


class DeviceError(CaffeImportError):
    """Requested devices that do not exist, or no longer once TensorFlow runs."""


def did_you_mean(written: str, allowed: Iterable[str], *, similarity: float = 0.6, most: int = 1) -> str:
    """Return ``'; did you mean "x"?'`` for the nearest allowed words, in whatever case, or an empty string.

    Args:
        written: The user's word.
        allowed: The words.
        similarity: difflib's least ratio of a word that is near.
        most: How many words may be named.

    Example:
        >>> did_you_mean("Convolutoin", ["Convolution", "ReLU"])
        '; did you mean "Convolution"?'
        >>> did_you_mean("RELU", ["Convolution", "ReLU"])
        '; did you mean "ReLU"?'
        >>> did_you_mean("SoftmaxLoss", ["Softmax", "SoftmaxWithLoss", "ReLU"], most=2)
        '; did you mean "SoftmaxWithLoss" or "Softmax"?'
        >>> did_you_mean("zzz", ["Convolution"])
        ''
    """
    words = {word.lower(): word for word in allowed}
    matches = get_close_matches(written.lower(), list(words), most, similarity)
    shown = " or ".join(f'"{words[match]}"' for match in matches)
    return f"; did you mean {shown}?" if matches else ""
