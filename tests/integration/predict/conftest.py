"""One bundle for all tests of this folder."""

import cv2
import pytest

from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.export import ExportConfig
from tests.integration.small_run import make_dataset, make_run


@pytest.fixture(scope="package")
def exported(tmp_path_factory):
    """Dataset, its test images (N, C, H, W) BGR, the run's evaluation and bundle, and the images as files."""
    from deepspark_ops.evaluate.stage import run_evaluate  # TensorFlow
    from deepspark_ops.export.bundle import write_bundle

    root = tmp_path_factory.mktemp("dataset")
    images, _ = make_dataset(root)["test"]
    run = make_run(tmp_path_factory.mktemp("run"), root)
    run_evaluate(EvaluateConfig(run_dir=run.root))
    bundle = write_bundle(ExportConfig(run_dir=run.root, formats="saved_model,caffe"), on_step=lambda step: None).folder
    folder = tmp_path_factory.mktemp("images")
    for number, image in enumerate(images):
        path = folder / f"{number % 2}" / f"{number:03d}.png"
        path.parent.mkdir(exist_ok=True)
        cv2.imwrite(str(path), image.transpose(1, 2, 0))
    return root, images, run, bundle, folder
