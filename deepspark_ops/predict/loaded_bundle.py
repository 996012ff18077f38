"""A bundle whose SavedModel is ready to answer in this process. Loads TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from caffe_import.tf_graph.devices import kind_of_option, set_up_devices
from deepspark_ops.export.manifest import SAVED_MODEL_NAME, BundleManifest
from deepspark_ops.export.served_input import Serve
from deepspark_ops.export.tf_saved_model import load_saved_model
from deepspark_ops.predict.class_answer import result_columns, served_answers
from deepspark_ops.predict.record import Values
from deepspark_ops.predict.samples import BundleForm, Parts


@dataclass(frozen=True)
class LoadedBundle:
    """A bundle in memory. Safe to share between threads.

    Attributes:
        manifest: The bundle's manifest.
        form: Form of the bundle's samples.
        serve: Function of the SavedModel.
        device: Device of the SavedModel, in words.
    """

    manifest: BundleManifest
    form: BundleForm
    serve: Serve
    device: str

    def answers(self, samples: Sequence[Parts]) -> dict[str, Values]:
        """Return output -> (n, ...), float32, of samples of any sizes."""
        return served_answers(self.serve, samples, self.form, self.manifest.results())

    def columns(self, samples: Sequence[Parts], top_k: int) -> dict[str, Sequence[Any]]:
        """Return every result of samples as the columns of predictions; see ``result_columns``."""
        return result_columns(self.answers(samples), self.manifest, top_k)


def choose_device(devices: Literal["auto", "cpu", "gpu"], *, n_threads: int) -> str:
    """Set TensorFlow up for a bundle and return the device; ``auto``: the first visible GPU, else the CPU.

    Raises:
        DeviceError: ``gpu``, and TensorFlow sees no GPU.
    """
    return set_up_devices(kind_of_option(devices), 1, n_threads=n_threads).description


def load_bundle(bundle: Path, manifest: BundleManifest, form: BundleForm, device: str) -> LoadedBundle:
    """Load a bundle's SavedModel; ``device`` is the result of ``choose_device``."""
    return LoadedBundle(manifest, form, load_saved_model(bundle / SAVED_MODEL_NAME), device)
