"""An exported model as an object."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt

from deepspark_ops.api import stages
from deepspark_ops.api.mistakes import mistakes_as_config_errors
from deepspark_ops.api.results.card import Card
from deepspark_ops.api.results.prediction_inputs import prediction_input
from deepspark_ops.api.results.predictions import Predictions
from deepspark_ops.api.results.result_folder import LocalFolder, StrPath
from deepspark_ops.api.signatures import config_from_call
from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.export.manifest import CARD_NAME, KERAS_NAME, MANIFEST_NAME, BundleManifest, parse_manifest

if TYPE_CHECKING:
    import pandas as pd

    from deepspark_ops.api.results.dataset import Samples


class Bundle(LocalFolder):
    """An exported or converted model, in all formats, with a manifest of inputs and outputs."""

    kind: ClassVar[str] = f"bundle ({MANIFEST_NAME})"
    written_by: ClassVar[str] = "ds.export, ds.convert or deepspark export"
    _marks: ClassVar[tuple[str, ...]] = (MANIFEST_NAME,)

    @property
    def manifest(self) -> BundleManifest:
        """Inputs, outputs, origin and checks of the bundle.

        Raises:
            ConfigError: The manifest is damaged.
        """
        with mistakes_as_config_errors():
            return parse_manifest(self.folder)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes; empty without known names."""
        return self.manifest.output.labels

    def predict(
        self,
        images: StrPath | Sequence[StrPath] | npt.NDArray[Any] | Samples | pd.DataFrame,
        *,
        progress: bool = True,
        **options: Any,
    ) -> pd.DataFrame:
        """Return the answers, a row per input, in the order of the inputs; TensorFlow runs in a separate process.

        Args:
            images: Paths of images; a path that ``ds.predict`` takes (a folder, a list, a dataset, a table); pixels
                (n, H, W, 3) RGB or (n, H, W) gray, uint8; the numbers of samples, (n, D) float; what ``dataset.sample``
                returns, if they are images; or a DataFrame with a column of images, of features, or one per input.
            progress: Show how far it is.
            options: Further arguments of ``ds.predict``, e.g. ``top_k=3``, ``resize_height=28``.

        Returns:
            ``predicted``, ``predicted_name``, ``probability``, ``scores`` of a classifier; a column per output of
            others; ``error`` says why an input could not be used, and is None for the others.

        Raises:
            ConfigError: Inputs that the bundle does not take, or a wrong option.
        """
        with tempfile.TemporaryDirectory(prefix="deepspark-") as scratch, mistakes_as_config_errors():
            output = Path(scratch, "answers.parquet")
            values = {**prediction_input(images, Path(scratch)), **options}
            if options.get("confined") and "allowed_root" not in options:
                values.pop("allowed_root", None)
            config = config_from_call(PredictConfig, {"bundle": self.folder, "output": output, **values})
            return Predictions(stages.answer_inputs(config, is_shown=progress)).frame()

    def keras(self) -> Any:
        """Return the model as a Keras model. This loads TensorFlow into this process.

        Raises:
            ConfigError: The bundle has no such file; the message says why.
            MissingExtra: Keras is not installed.
        """
        if not (self.folder / KERAS_NAME).is_file():
            why = self.manifest.check.left_out.get("keras")
            remedy = f"the net cannot have one: {why}" if why else "export again with formats that include keras"
            msg = f"folder={self.folder}: no {KERAS_NAME} in the bundle; {remedy}"
            raise ConfigError(msg)
        from deepspark_ops.api.results.tf_keras_model import load_keras

        return load_keras(self.folder / KERAS_NAME)

    def _card(self) -> Card:
        manifest = self.manifest
        labels = ", ".join(manifest.output.labels[:12]) + (" ..." if len(manifest.output.labels) > 12 else "")
        formats = [name for name in manifest.files if "/" not in name and name != CARD_NAME]
        folders = sorted({name.partition("/")[0] for name in manifest.files if "/" in name})
        rows: dict[str, object] = {
            "takes": "; ".join(
                f"{part.name} {_shape(part.shape)} {part.dtype} {part.channels}" for part in manifest.inputs
            ),
            "gives": "; ".join(f"{part.name} {_shape(part.shape)}, {part.task}" for part in manifest.results()),
            "classes": labels or None,
            "from": ", ".join(
                dict.fromkeys([manifest.origin.run, manifest.origin.weights])
            ),  # the same of a conversion
            "files": ", ".join([*formats, *(f"{name}/" for name in folders)]),
            "checked on": f"{manifest.check.n_samples} samples, largest difference {manifest.check.largest():.2g}",
        }
        return Card(f"Bundle: {manifest.net}", str(self.folder), note=manifest.created[:10], rows=rows)


def _shape(shape: Sequence[int]) -> str:
    return " x ".join("N" if extent < 0 else str(extent) for extent in shape)
