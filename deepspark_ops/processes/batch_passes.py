"""Forward passes over batches, several at a time where a single pass leaves cores idle. No framework."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from math import ceil, prod
from typing import Any, Final, Generic, Protocol, TypeVar

from caffe_import.errors import NetError
from deepspark_ops.processes.ahead import mapped_ahead

_FLOAT_BYTES: Final = 4
MOST_PASS_BYTES: Final = 256 * 2**20
"""Bytes of a forward pass' blobs. Larger nets compute one pass at a time: a second pass would need much memory, and the
kernels of such a net fill the cores."""

LayerState = Mapping[str, Any]


class PassResult(Protocol):
    """The result of a pass."""

    @property
    def layer_state(self) -> LayerState:
        """State for the next pass of the same sequence (LSTM, RNN)."""


_Batch = TypeVar("_Batch")
_Result = TypeVar("_Result", bound=PassResult)


def passes_at_once(shapes: Iterable[Sequence[int]], n_threads: int, *, is_host: bool) -> int:
    """Return the number of parallel forward passes: 2 if a pass leaves cores idle, else 1.

    Between kernels, and in the Python code around a pass, most cores wait: on two cores cifar10_quick with batches of
    100 keeps 1.6 cores busy.

    Args:
        shapes: Shapes of the net's blobs, with the batch size of the computation; float32.
        n_threads: Cores for this process.
        is_host: Does the CPU compute? Kernels of a GPU run one after another anyway.
    """
    n_bytes = _FLOAT_BYTES * sum(prod(shape) for shape in shapes)
    return 2 if is_host and n_threads > 1 and n_bytes <= MOST_PASS_BYTES else 1


def part_ranges(n_samples: int, *, n_slots: int, most: int, unit: int) -> list[tuple[int, int]]:
    """Return (first sample, sample behind the last) of each part of the samples, for ``n_slots`` tasks at a time.

    ``unit`` is the number of samples that are computed together. A part begins at a multiple of ``unit``. So each
    sample is in the same batch as without parts, and the answers have the same bits. A part has at most ``most``
    samples, rounded up to whole units.

    Example:
        >>> part_ranges(10, n_slots=2, most=4, unit=1), part_ranges(53, n_slots=2, most=1_000, unit=10)
        ([(0, 4), (4, 8), (8, 10)], [(0, 30), (30, 53)])
    """
    size = ceil(n_samples / min(n_samples, max(n_slots, ceil(n_samples / most))))
    size = ceil(size / unit) * unit
    return [(start, min(start + size, n_samples)) for start in range(0, n_samples, size)]


def several_shapes(output: str, shape: Sequence[int], first: Sequence[int]) -> NetError:
    """Return the error for an output whose mean over the batches does not exist."""
    msg = (
        f'output "{output}" has shape {tuple(shape)} for one sample and {tuple(first)} for the first; a test reports'
        " the mean over the batches, which needs equal shapes; let a Silence layer read the blob"
    )
    return NetError(msg)


class BatchPasses(Generic[_Batch, _Result]):
    """Passes of a net over consecutive batches: ``n_at_once`` at a time, or one after another with layer state."""

    def __init__(
        self, run: Callable[[_Batch, LayerState], _Result], layer_state: LayerState, *, n_at_once: int
    ) -> None:
        """Compute nothing yet.

        Args:
            run: A pass; called on several threads at once if ``n_at_once`` is more than 1.
            layer_state: State for the first pass; empty for a net that keeps nothing from batch to batch.
            n_at_once: Result of ``passes_at_once``.
        """
        self._run = run
        self._layer_state = layer_state
        self._n_threads = 1 if layer_state else n_at_once

    def results(self, batches: Iterable[_Batch]) -> Generator[_Result, None, None]:
        """Yield the result of each batch, in order; a thread reads the batches ahead.

        The layer state goes on from the last batch of the call before.
        """
        with closing(mapped_ahead(batches, self._pass, n_threads=self._n_threads, name="net")) as passes:
            for _, result in passes:
                yield result

    def _pass(self, batch: _Batch) -> _Result:
        result = self._run(batch, self._layer_state)
        if self._layer_state:
            self._layer_state = result.layer_state
        return result
