"""Answers of the server, without HTTP: the model's description, and rows for samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deepspark_ops.config.commands.serve import ServeConfig
from deepspark_ops.export.manifest import MANIFEST_NAME, BundleManifest, file_digest
from deepspark_ops.export.served_output import SCORES
from deepspark_ops.predict.class_answer import result_columns
from deepspark_ops.predict.record import Values
from deepspark_ops.predict.samples import Parts
from deepspark_ops.serve.batching import Answers, Batcher
from deepspark_ops.serve.metrics import ServerMetrics
from deepspark_ops.serve.refusal import RequestRefused
from deepspark_ops.serve.request_pixels import RequestPixels
from deepspark_ops.serve.saliency import BundleSaliency

if TYPE_CHECKING:
    from deepspark_ops.predict.loaded_bundle import LoadedBundle

_SERVER_FAULT = 500


@dataclass(frozen=True)
class Service:
    """A model with a queue and counters. Safe to share between threads.

    Attributes:
        model: The bundle.
        batcher: Queue of requests.
        metrics: Counters.
        about: Answer of ``GET /v1/model``.
        pixels: Judges the range of the images of requests.
        saliency: Draws saliency maps.
    """

    model: LoadedBundle
    batcher: Batcher
    metrics: ServerMetrics
    about: Mapping[str, Any]
    pixels: RequestPixels
    saliency: BundleSaliency

    @classmethod
    def of(cls, model: LoadedBundle, config: ServeConfig) -> Service:
        """Start a model's thread; ``close`` ends it."""
        saliency = BundleSaliency(model.manifest, config)
        about = {**about_model(model.manifest, config.bundle), "saliency": dict(saliency.unavailable)}
        unit = model.manifest.unit_batch
        metrics = ServerMetrics(model.manifest.net, about["digest"])
        batcher = Batcher(
            model.answers,
            batch_size=ceil(config.batch_size / unit) * unit,
            wait_s=config.batch_wait_ms / 1_000,
            on_call=metrics.computed,
            are_apart=unit > 1,  # the net would mix the samples of two callers
        )
        return cls(model, batcher, metrics, about, RequestPixels(model.form), saliency)

    def submit(self, samples: Sequence[Parts]) -> Future[Answers]:
        """Return a future with every output of samples."""
        return self.batcher.submit(samples)

    def rows(self, answers: Answers, top_k: int, *, with_scores: bool) -> list[dict[str, Any]]:
        """Return an object per sample, with the names of ``deepspark predict``'s columns.

        Raises:
            RequestRefused: 500: the net gave a number that is not finite, which JSON cannot hold.
        """
        for name, values in answers.items():
            if not np.isfinite(values).all():
                text = f'the net gave a number of "{name}" that is not finite; the samples are out of range'
                raise RequestRefused(_SERVER_FAULT, text)
        columns = result_columns(answers, self.model.manifest, top_k)
        names = [name for name in columns if with_scores or name != SCORES]
        n_rows = len(next(iter(answers.values())))
        return [{name: _plain(columns[name][row]) for name in names} for row in range(n_rows)]

    def close(self) -> None:
        """Answer the waiting requests and end the thread."""
        self.batcher.close()


def about_model(manifest: BundleManifest, bundle: Path) -> dict[str, Any]:
    """Return the description of a model for clients: net, inputs, outputs, classes, digests."""
    return {
        "net": manifest.net,
        "bundle": bundle.absolute().name,
        "digest": file_digest(bundle / MANIFEST_NAME),
        "created": manifest.created,
        "run": manifest.origin.run,
        "iteration": manifest.origin.iteration,
        "weights_digest": manifest.origin.weights_digest,
        "inputs": [contract.model_dump(mode="json") for contract in manifest.inputs],
        "outputs": [output.model_dump(mode="json") for output in manifest.results()],
        "classes": list(manifest.output.labels),
        "takes_pictures": len(manifest.inputs) == 1 and manifest.inputs[0].takes_images,
    }


def warm_up(model: LoadedBundle) -> None:
    """Compute a sample of zeros: the first call of a model takes longer than all later calls.

    Raises:
        DeepSparkError: The model does not take the inputs of the manifest.
    """
    model.answers([tuple(_zeros(form.contract.shape[1:], form.takes_images, form.crop_size, form.contract.dtype)
                        for form in model.form.inputs)])  # fmt: skip


def _zeros(shape: tuple[int, ...], is_image: bool, crop_size: int, dtype: str) -> Values:
    extents = tuple(max(crop_size, 1) if extent < 0 else extent for extent in shape)
    return np.zeros((extents[2], extents[0], extents[1]) if is_image else extents, dtype)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
