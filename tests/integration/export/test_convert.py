"""A bundle made of files alone serves the numbers of the bundle that the run exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepspark_ops.config.export import ExportConfig
from deepspark_ops.export.bundle import Bundle, write_bundle
from deepspark_ops.export.convert.__main__ import main
from deepspark_ops.export.manifest import BundleManifest, file_digest, read_manifest
from deepspark_ops.export.tf_saved_model import load_saved_model
from deepspark_ops.run_paths import RunPaths
from tests.integration.small_run import CLASS_NAMES, make_dataset, make_run

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunPaths, npt.NDArray[np.uint8]]:
    """Return a dataset, a run, and test images in the form of the exported model."""
    dataset = tmp_path_factory.mktemp("dataset")
    images = make_dataset(dataset)["test"][0]
    run = make_run(tmp_path_factory.mktemp("run"), dataset, n_steps=20)
    return dataset, run, images[:, ::-1].transpose(0, 2, 3, 1)


@pytest.fixture(scope="module")
def exported(trained: tuple[Path, RunPaths, npt.NDArray[np.uint8]]) -> Bundle:
    return write_bundle(ExportConfig(run_dir=trained[1].root, formats="saved_model,caffe"), on_step=lambda _: None)


def convert(folder: Path, **values: Any) -> BundleManifest:
    """Run the stage as a process does, with paths from JSON."""
    config = folder / "config.json"
    config.write_text(
        json.dumps(
            {
                name: str(value)
                for name, value in {**values, "output": folder / "made", "formats": "saved_model,caffe"}.items()
            }
        )
    )
    main(config)
    return read_manifest(folder / "made")


def scores(bundle: Path, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    return load_saved_model(bundle / "saved_model")({"images": images})["scores"]


def test_a_deploy_net_with_mean_and_scale_serves_what_the_run_exported(
    trained: tuple[Path, RunPaths, npt.NDArray[np.uint8]], exported: Bundle, tmp_path: Path
) -> None:
    _, run, images = trained
    old = exported.folder
    # The mean (14 x 16) is larger than the net's input (12 x 12), as is usual: the centre is cut out of the images.
    manifest = convert(
        tmp_path,
        net=old / "deploy.prototxt",
        weights=run.snapshot("patches", 20, "caffemodel"),
        mean=old / "mean.binaryproto",
        scale=0.0078125,
        class_names=old / "labels.txt",
    )
    np.testing.assert_allclose(scores(tmp_path / "made", images), scores(old, images), rtol=1e-5)  # float32
    assert manifest.inputs == exported.manifest.inputs
    assert manifest.output == exported.manifest.output
    assert manifest.output.labels == CLASS_NAMES
    assert manifest.origin.weights_digest == exported.manifest.origin.weights_digest
    assert manifest.origin.net_digest == file_digest(old / "deploy.prototxt")
    assert (manifest.origin.solver_digest, manifest.origin.datasets) == (None, {})
    assert "metrics.json" not in manifest.files  # nobody has scored it


def test_a_training_net_is_checked_on_a_datasets_samples_with_its_own_preprocessing(
    trained: tuple[Path, RunPaths, npt.NDArray[np.uint8]], exported: Bundle, tmp_path: Path
) -> None:
    dataset, run, images = trained
    weights = run.snapshot("patches", 20, "caffemodel")
    manifest = convert(tmp_path, net=run.root.parent / "net.prototxt", weights=weights, dataset=dataset)
    np.testing.assert_allclose(scores(tmp_path / "made", images), scores(exported.folder, images), rtol=1e-5)
    assert manifest.inputs == exported.manifest.inputs
    assert manifest.output.labels == CLASS_NAMES


def test_a_deploy_net_is_checked_on_a_datasets_samples(
    trained: tuple[Path, RunPaths, npt.NDArray[np.uint8]], exported: Bundle, tmp_path: Path
) -> None:
    dataset, run, _ = trained
    net, weights = exported.folder / "deploy.prototxt", run.snapshot("patches", 20, "caffemodel")
    manifest = convert(tmp_path, net=net, weights=weights, dataset=dataset, mean_values="1,2.5,3", scale=0.5)
    (contract,) = manifest.inputs
    assert contract.preprocessing == (
        "channels to BGR",
        "cut out the central 12 x 12 pixels",
        "subtract 1, 2.5, 3 per channel (BGR)",
        "multiply by 0.5",
    )
    assert manifest.output.labels == CLASS_NAMES
