"""The values of a bundle's blobs: deploy.prototxt with weights.caffemodel, checked against the SavedModel."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, Final

import numpy as np

from caffe_import.data.transform import transform_batch
from caffe_import.tf_graph.predict import compile_fixed_forward
from deepspark_ops.config.commands.predict import FeaturesConfig
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.trained_net import load_params
from deepspark_ops.export.input_steps import options_from_words, table_of_input
from deepspark_ops.export.manifest import DEPLOY_NAME, SAVED_MODEL_NAME, WEIGHTS_NAME, BundleManifest
from deepspark_ops.export.tf_saved_model import load_saved_model
from deepspark_ops.predict.class_answer import served_answers
from deepspark_ops.predict.columns import blob_shapes, deploy_net
from deepspark_ops.predict.record import Values
from deepspark_ops.predict.samples import BundleForm, Parts, chunk_size

ALLOWED_DIFFERENCE: Final = 1e-3
"""Largest difference of a number, relative to the largest, between the SavedModel and the deploy net."""


class BlobAnswer:
    """Computes the values of a deploy net's blobs. Safe to share between threads.

    Attributes:
        shapes: (name, shape without the batch axis) of each wanted blob.
    """

    def __init__(self, config: FeaturesConfig, manifest: BundleManifest, form: BundleForm, n_threads: int) -> None:
        """Compile the net.

        Raises:
            NetError: The net has no such blob; the message lists the blobs.
            ConfigError: The first axes of a blob do not number the samples.
        """
        batch_size = chunk_size(manifest, config.batch_size)
        net = deploy_net(config, batch_size)
        # A single image has the name "images", whatever the net's blob; several inputs have the blobs' names.
        self._inputs = dict(net.inputs) if len(form.inputs) == 1 else {name: net.inputs[name] for name in form.names}
        self._main = manifest.results()[0]
        # Before version 5 the manifest does not name the deploy net's blob; the net then has a single output.
        self._probability = self._main.blob if manifest.outputs else net.outputs[-1]
        names = config.blob_names
        params = load_params(net, config.bundle / WEIGHTS_NAME)
        outputs = [*dict.fromkeys((*names, self._probability))]
        self._forward = compile_fixed_forward(net, params, n_threads=n_threads, outputs=outputs)
        self.shapes = blob_shapes(net, config, batch_size)
        self._options = [options_from_words(sample.contract.preprocessing, config.bundle) for sample in form.inputs]
        self._tables = [table_of_input(sample.contract, config.bundle) for sample in form.inputs]
        self._form = form
        self._config = config
        self._check_lock = Lock()
        self._is_checked = False

    def __call__(self, samples: Sequence[Parts]) -> dict[str, Any]:
        """Return the blobs' values, a flat vector per sample."""
        feeds = {name: np.zeros(shape, np.float32) for name, shape in self._inputs.items()}
        for at, feed in enumerate(feeds.values()):
            for row, parts in enumerate(samples):
                feed[row] = self._fed(parts[at], at)
            feed[len(samples) :] = feed[len(samples) - 1]
        blobs = self._forward(feeds)
        with self._check_lock:
            if not self._is_checked:
                self._check(samples, blobs[self._probability])
                self._is_checked = True
        n_rows = len(next(iter(feeds.values())))
        return {name: blobs[name].reshape(n_rows, -1)[: len(samples)] for name, _ in self.shapes}

    def _fed(self, values: Values, at: int) -> Values:
        table = self._tables[at]
        if table is not None:
            features: Values = table.apply(values[np.newaxis])[0]
            return features
        if not self._form.inputs[at].takes_images:
            return values
        fed: Values = transform_batch(values[np.newaxis], self._options[at], phase="TEST")[0]
        return fed

    def _check(self, samples: Sequence[Parts], probabilities: Values) -> None:
        """Compare the first answer with the SavedModel's: the manifest's crop, mean and scale must be the SavedModel's.

        Raises:
            DataError: The answers differ.
        """
        serve = load_saved_model(self._config.bundle / SAVED_MODEL_NAME)
        expected = served_answers(serve, samples, self._form, [self._main])[self._main.name]
        largest = float(np.abs(expected).max()) or 1.0
        answers = probabilities.reshape(-1, *expected.shape[1:])[: len(samples)]
        difference = float(np.abs(answers - expected).max()) / largest
        if not difference <= ALLOWED_DIFFERENCE:
            msg = (
                f"bundle={self._config.bundle}: {DEPLOY_NAME} with {WEIGHTS_NAME} differs from {SAVED_MODEL_NAME} by"
                f" {difference:.2g} relative to the largest; allowed: {ALLOWED_DIFFERENCE:g}; export again"
            )
            raise DataError(msg)
