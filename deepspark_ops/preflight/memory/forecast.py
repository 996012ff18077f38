"""Forecast of a run's memory, from shapes alone: a worker, the driver, and a machine with all processes.

The forecast is fitted to peaks of resident memory (VmHWM, MiB) of ``deepspark train``. Each run had a thread per
worker, TensorFlow 2.21, Python 3.11, tau 1, a test net, a snapshot and a small LMDB. With two workers the peak is of
the testing worker (3,541 for the other worker)::

    net (solver)          batch  workers  worker   forecast  driver  forecast
    LeNet (SGD)              64        1     786        784     194       212
    cifar10_quick (SGD)     100        1     859        845     186       204
    SqueezeNet (SGD)         16        1   1,432      1,542     227       234
    GoogLeNet (SGD)           4        1   1,827      1,779     628       573
    GoogLeNet (SGD)          16        1   2,417      2,375     628       573
    CaffeNet (SGD)            8        1   3,763      3,982   1,848     1,898
    CaffeNet (SGD)            8        2   4,149      3,982   2,078     2,130
    CaffeNet (SGD)           32        1   3,897      4,165   1,847     1,898
    CaffeNet (SGD)           64        1   4,214      4,408   1,847     1,898
    CaffeNet (Adam)           8        1   4,550      4,773   2,846     2,898

A GPU's memory is another matter. Spark's JVM and the exchange server come on top, ``OTHER_BYTES`` together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from deepspark_ops.train.data.batches import RING_BYTES, RING_STEPS
from deepspark_ops.train.data.sample_cache import CACHE_BYTES

WORKER_BYTES: Final = 745 * 2**20
"""A worker with TensorFlow loaded and a tiny net."""
LIBRARY_BYTES: Final = 450 * 2**20
"""Memory that all workers of a machine share: TensorFlow's libraries."""
DRIVER_BYTES: Final = 200 * 2**20
OTHER_BYTES: Final = 300 * 2**20

_ACTIVATIONS: Final = 1.9
"""Activations kept for the backward pass, and their live gradients."""
_WORKER_VECTORS: Final = 9.5
_WORKER_VECTORS_PER_SLOT: Final = 3.4
"""While a step runs, parameters and history exist before and after it, gradients in Caffe's and in TensorFlow's layout;
a test holds the pulled center twice, an exchange a fresh vector."""
_DRIVER_VECTORS: Final = 3.0
_DRIVER_VECTORS_PER_SLOT: Final = 4.3
"""The start and the center; a snapshot holds the first worker's history as array, message and bytes."""


def worker_bytes(
    n_params: int, activation_bytes: int, n_slots: int, *, step_bytes: int = 0, sample_bytes: Iterable[int] = ()
) -> int:
    """Forecast the peak memory of a worker process, including shared memory.

    Args:
        n_params: Length of the parameter vector.
        activation_bytes: All blobs of one pass of the training net.
        n_slots: The solver's history vectors.
        step_bytes: Bytes of a minibatch's inputs; steps are prefetched.
        sample_bytes: Stored bytes of each dataset's samples; small datasets are cached.
    """
    ring = min(RING_BYTES, RING_STEPS * step_bytes)
    cached = sum(size for size in sample_bytes if size <= CACHE_BYTES)
    vectors = _WORKER_VECTORS + _WORKER_VECTORS_PER_SLOT * n_slots
    return int(WORKER_BYTES + ring + cached + _ACTIVATIONS * activation_bytes + 4 * vectors * n_params)


def driver_bytes(n_params: int, n_slots: int, n_workers: int) -> int:
    """Forecast the peak memory of the driver: during a snapshot, with every worker's history."""
    vectors = _DRIVER_VECTORS + (_DRIVER_VECTORS_PER_SLOT + n_workers - 1) * n_slots
    return int(DRIVER_BYTES + 4 * vectors * n_params)


def machine_bytes(worker: int, driver: int, n_params: int, n_workers: int) -> int:
    """Return the memory of a machine for all workers and the driver, with shared libraries and center."""
    shared = LIBRARY_BYTES + 4 * n_params
    return n_workers * (worker - shared) + shared + driver + OTHER_BYTES
