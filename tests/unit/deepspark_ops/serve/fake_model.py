"""A model of a few lines: scores are a fixed function of the pixels, easily computed by hand."""

from __future__ import annotations

import numpy as np

from deepspark_ops.config.commands.serve import ServeConfig
from deepspark_ops.export.manifest import InputContract
from deepspark_ops.predict.samples import BundleForm, SampleForm
from tests.reference.bundles import make_bundle

LABELS = ("dark", "<b>bright</b>")


def image_input(name="images", shape=(-1, 2, 3, 3), crop_size=0):
    contract = InputContract(name=name, shape=shape, axes="N, H, W, C", dtype="uint8", channels="RGB", preprocessing=())
    return SampleForm.of(contract, crop_size=crop_size)


def number_input(name="x", shape=(-1, 4)):
    axes = ", ".join(["N", *(f"axis {at}" for at in range(1, len(shape)))])
    return SampleForm.of(
        InputContract(name=name, shape=shape, axes=axes, dtype="float32", channels="", preprocessing=())
    )


class FakeModel:
    """Scores are (1 - m, m), m the mean of a sample's blue channel (or numbers), as a share of 255."""

    def __init__(self, folder, *inputs):
        self.form = BundleForm(inputs or (image_input(),))
        self.bundle = make_bundle(folder / "bundle", labels=LABELS)
        from deepspark_ops.export.manifest import parse_manifest

        contracts = tuple(model_input.contract for model_input in self.form.inputs)
        self.manifest = parse_manifest(self.bundle).model_copy(update={"inputs": contracts})
        self.calls = []

    def answers(self, samples):
        self.calls.append(len(samples))
        bright = np.array([parts[0][0].mean() / 255 for parts in samples], np.float32)
        return {"scores": np.stack([1 - bright, bright], axis=1)}


def serve_config(model, **options):
    return ServeConfig(bundle=model.bundle, **{"batch_wait_ms": 0, **options})
