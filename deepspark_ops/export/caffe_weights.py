"""The trained parameters of a net as the parameters of its deploy form."""

from __future__ import annotations

import numpy as np

from caffe_import.net.param_layout import ParamLayout, Vector


def deploy_params(trained: ParamLayout, params: Vector, deploy: ParamLayout) -> Vector:
    """Return the deploy net's parameter vector, a fresh array of shape (deploy.n_params,).

    Layers keep their names, so (layer, index) identifies each blob. A shared blob may have another owner in the deploy
    net, where the first user was cut off.

    Args:
        trained: Layout of the net that was trained, phase TEST.
        params: Vector of the trained net, shape (trained.n_params,); read only.
        deploy: Layout of the deploy net.
    """
    vector = np.empty(deploy.n_params, np.float32)
    for entry in deploy.entries:
        source = trained.entry(entry.layer, entry.index)
        vector[entry.offset : entry.stop] = params[source.offset : source.stop]
    return vector
