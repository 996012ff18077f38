"""A bundle whose SavedModel is ready to answer in this process. Loads TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from caffe_import.tf_graph.devices import n_gpus_seen, set_up_devices
from deepspark_ops.export.manifest import SAVED_MODEL_NAME, BundleManifest
from deepspark_ops.export.tf_saved_model import Serve, load_saved_model
from deepspark_ops.predict.class_answer import class_columns, served_scores
from deepspark_ops.predict.record import Values
from deepspark_ops.predict.samples import BundleForm, Parts


@dataclass(frozen=True)
class LoadedBundle:
    """A bundle in memory. Safe to share between threads.

    Attributes:
        manifest: What the bundle says of itself.
        form: What its samples are.
        serve: The SavedModel's function.
        device: What it computes on, in words.
    """

    manifest: BundleManifest
    form: BundleForm
    serve: Serve
    device: str

    def scores(self, samples: Sequence[Parts]) -> Values:
        """Return the scores (n, n_classes), float32, of samples of any sizes."""
        return served_scores(self.serve, samples, self.form, self.manifest.output)

    def columns(self, scores: Values, top_k: int) -> dict[str, Sequence[Any]]:
        """Return scores as the columns of predictions; see ``class_columns``."""
        return class_columns(scores, self.manifest.output, top_k)


def choose_device(devices: Literal["auto", "cpu", "gpu"], *, n_threads: int) -> str:
    """Set TensorFlow up for a bundle and return what it computes on; ``auto``: the first GPU that it sees, if any.

    Raises:
        DeviceError: ``gpu``, and TensorFlow sees none.
    """
    is_gpu = devices == "gpu" or (devices == "auto" and n_gpus_seen() > 0)
    return set_up_devices("gpu" if is_gpu else "cpu", 1, n_threads=n_threads).description


def load_bundle(bundle: Path, manifest: BundleManifest, form: BundleForm, device: str) -> LoadedBundle:
    """Load a bundle's SavedModel; ``device`` is what ``choose_device`` returned."""
    return LoadedBundle(manifest, form, load_saved_model(bundle / SAVED_MODEL_NAME), device)
