"""Classes of a net's Python layers, registered by the module and the name in the net.

In pycaffe the class writes numpy arrays and has a backward pass. Here ``forward`` is TensorFlow operations, traced
once into the graph, and the gradient is TensorFlow's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from traceback import extract_tb
from typing import Any, Protocol, TypeVar

from caffe_import.errors import did_you_mean
from caffe_import.net.layer_registry import LayerRequest, Shape


@dataclass(frozen=True)
class PythonBlob:
    """One parameter blob of a Python layer, pycaffe's ``self.blobs.add_blob(...)``.

    Attributes:
        shape: Shape of the blob.
        filler: Filler of a fresh blob: prototxt of a FillerParameter, e.g. ``type: "xavier"``; 0 without.
    """

    shape: Shape
    filler: str = ""


class PythonLayer(Protocol):
    """Methods of a registered class. Each layer of a net creates an object, without arguments.

    A class with parameters also has ``blobs(self, bottom_shapes) -> Sequence[PythonBlob]``, called after ``setup``; its
    ``forward`` then takes the blobs' float32 tensors as the keyword ``blobs``. The blobs are named, shared, saved and
    updated like the blobs of any other layer (``param { lr_mult: ... }``).
    """

    def setup(self, param_str: str, bottom_shapes: tuple[Shape, ...]) -> None:
        """Read ``python_param.param_str`` and look at the bottoms' Caffe shapes; raise ValueError where they are wrong.

        Keep nothing of the batch axis: an exported net takes batches of any size.
        """

    def reshape(self, bottom_shapes: tuple[Shape, ...]) -> Sequence[Shape]:
        """Return one Caffe shape per top."""

    def forward(self, bottoms: Sequence[Any], *, is_training: bool) -> Sequence[Any]:
        """Return one float32 tensor per top, of the shapes of ``reshape``; of a layer in place, too.

        Import TensorFlow inside this method: checking a net calls the others only, and starts without TensorFlow.

        Args:
            bottoms: float32 tensors in Caffe's axis order (N, C, H, W).
            is_training: Does the layer run in phase TRAIN?
        """


class UnfitPythonLayer(TypeError):
    """A class that was registered cannot be called as a ``PythonLayer`` is."""


LayerClass = TypeVar("LayerClass", bound=type)
"""Not ``type[PythonLayer]``: ``forward`` of a class with blobs takes them, too. ``python_layer`` checks the methods."""
_METHODS = {
    "setup": ("(self, param_str, bottom_shapes)", 2, ()),
    "reshape": ("(self, bottom_shapes)", 1, ()),
    "forward": ("(self, bottoms, *, is_training)", 1, ("is_training",)),
}
"""Method -> how it is written, and the arguments that it is called with after ``self``: how many, and keywords."""
_CLASSES: dict[tuple[str, str], Callable[[], PythonLayer]] = {}
_allowed_modules: frozenset[str] | None = frozenset()


def allow_python_modules(modules: Iterable[str] | None) -> None:
    """Let this process import these modules if a net names them; None allows every module.

    Importing a module runs its code with the rights of this process, and a net may come from a stranger. So no module
    is imported before this call. Modules imported by the program are registered and need no permission.
    """
    global _allowed_modules
    _allowed_modules = None if modules is None else frozenset(modules)


def python_layer(*, module: str, name: str) -> Callable[[LayerClass], LayerClass]:
    """Register the decorated class for ``python_param { module: "..." layer: "..." }``.

    Args:
        module: As the net says it. If a file of this name can be imported, that is done when the net is built.
        name: As in the net's field ``layer``.

    Raises:
        ValueError: Another class is registered under both.
        UnfitPythonLayer: The class lacks a method of ``PythonLayer``, or one takes other arguments, as pycaffe's do.

    Example:
        >>> @python_layer(module="example", name="Twice")
        ... class Twice:
        ...     def setup(self, param_str, bottom_shapes):
        ...         self.factor = float(param_str or 2)
        ...
        ...     def reshape(self, bottom_shapes):
        ...         return bottom_shapes
        ...
        ...     def forward(self, bottoms, *, is_training):
        ...         return [self.factor * bottom for bottom in bottoms]
    """

    def register(layer_class: LayerClass) -> LayerClass:
        if finding := _unfit(layer_class):
            msg = f'Python layer "{name}" of module "{module}": {finding}'
            raise UnfitPythonLayer(msg)
        registered = _CLASSES.setdefault((module, name), layer_class)
        if registered is not layer_class:
            msg = f'Python layer "{name}" of module "{module}" is registered twice'
            raise ValueError(msg)
        return layer_class

    return register


def _unfit(layer_class: type) -> str:
    """Return what keeps a class from being called as a ``PythonLayer`` is; empty if nothing."""
    missing = [name for name in _METHODS if not callable(getattr(layer_class, name, None))]
    if missing:
        return f"the class has no method {', '.join(missing)}"
    for name, (expected, n_arguments, keywords) in _METHODS.items():
        method = getattr(layer_class, name)
        if not inspect.isfunction(method):
            continue  # bound to the class, or callable in a way of its own
        if name == "forward" and hasattr(layer_class, "blobs"):
            keywords = (*keywords, "blobs")
        try:
            inspect.signature(method).bind(*[None] * (1 + n_arguments), **dict.fromkeys(keywords))
        except TypeError:
            return (
                f"{name}{inspect.signature(method)} is not what is called here: def {name}{expected}, which returns"
                " what it makes where pycaffe's writes into top; see caffe_import.net.python_layers"
            )
    return ""


def find_python_layer(request: LayerRequest) -> Callable[[], PythonLayer]:
    """Return the class that the layer's ``python_param`` names; import the module of an unregistered class.

    Raises:
        NetError: No such module, it may not be imported, or no such class in it.
    """
    param = request.message.python_param
    key = (param.module, param.layer)
    if key not in _CLASSES:
        _import(request, param.module)
    if key not in _CLASSES:
        names = sorted(name for module, name in _CLASSES if module == param.module)
        finding = (
            f'module "{param.module}" registers no layer "{param.layer}"; registered: {", ".join(names) or "none"}'
            f"{did_you_mean(param.layer, names)}; decorate its class with "
            "@python_layer(module=..., name=...) of caffe_import.net.python_layers"
        )
        raise request.refuse(finding)
    return _CLASSES[key]


def _import(request: LayerRequest, module: str) -> None:
    if not all(part.isidentifier() for part in module.split(".")):
        finding = f'python_param.module="{module}" is no name of a module'
        raise request.refuse(finding)
    if _allowed_modules is not None and module not in _allowed_modules:
        if any(registered_module == module for registered_module, _ in _CLASSES):
            return  # the program has imported it
        allowed = ", ".join(sorted(_allowed_modules)) or "none"
        finding = (
            f'python_param.module="{module}" is not imported: that would run its code, and it is not among the modules'
            f" that may be ({allowed}); if you trust it, allow it: --allow-python-layers, or its name in the option"
            " python_layers; in Airflow DEEPSPARK_PYTHON_LAYERS"
        )
        raise request.refuse(finding)
    try:
        import_module(module)
    except UnfitPythonLayer as error:
        raise request.refuse(str(error)) from error
    except Exception as error:  # the module is the user's code
        if not _lacks_file(module, error):
            finding = (
                f'module "{module}" cannot be imported: {described_exception(error)}; it runs without pycaffe and in'
                " Python 3 (docs/guides/own_layer.md)"
            )
            raise request.refuse(finding) from error
        if any(registered_module == module for registered_module, _ in _CLASSES):
            return  # it was registered without a file of this name
        finding = f'module "{module}" cannot be imported ({error}); put its folder on PYTHONPATH, for every worker'
        raise request.refuse(finding) from error


def _lacks_file(module: str, error: Exception) -> bool:
    """Return whether the module itself, or a package on the way to the module, has no file."""
    return isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")


def described_exception(error: Exception) -> str:
    """Return what code of the user's raised, with the innermost line of the code: ``KeyError: 'mean' (a.py:3)``."""
    text = f"{type(error).__name__}: {error}"
    lines = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen ")]
    return text if isinstance(error, SyntaxError) or not lines else f"{text} ({lines[-1].filename}:{lines[-1].lineno})"
