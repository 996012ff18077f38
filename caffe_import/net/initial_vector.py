"""The parameter vector with which a net starts. Numpy only."""

from __future__ import annotations

import zlib

import numpy as np

from caffe_import.net.fillers import fill
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector

_SEED_MASK = 2**64 - 1


def initial_vector(net_spec: NetSpec, seed: int) -> Vector:
    """Return the whole parameter vector (n_params,), float32, filled by the net's fillers.

    The seed and the blob's name make the blob's random generator: adding a layer does not change the start of other
    blobs.

    Any integer is a seed; equal seeds give equal vectors.
    """
    vector = np.zeros(net_spec.params.n_params, np.float32)
    for entry in net_spec.params.entries:
        spec = net_spec.layer(entry.layer).definition.blobs[entry.index]
        rng = np.random.default_rng([seed & _SEED_MASK, zlib.crc32(entry.name.encode())])
        vector[entry.offset : entry.stop] = fill(spec.filler, spec.shape, rng).reshape(-1)
    return vector
