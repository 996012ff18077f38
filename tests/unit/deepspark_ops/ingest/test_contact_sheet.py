"""A strip of samples of each class: the right ones, whatever was rejected, and small."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest import contact_sheet
from deepspark_ops.ingest.commit import commit_dataset
from deepspark_ops.ingest.contact_sheet import CELL_PIXELS, MOST_BYTES, SAMPLES_OF_A_CLASS, add_contact_sheet
from deepspark_ops.ingest.image_plan import plan_images
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.ingest.shard_task import run_shard_task
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.files.picture_archive import PictureArchive
from deepspark_ops.shards.manifest import manifest_path
from deepspark_ops.shards.reader import open_dataset
from tests.reference.raw_sources import write_images


def sheet(config: IngestConfig, work: Path) -> dict[int, np.ndarray]:
    """Ingest and return class -> strip, (H, W, 3) BGR."""
    work.mkdir()
    recipe = make_recipe(config)
    plan = plan_images(config, recipe, work)
    results = [run_shard_task(task) for task in plan.tasks][::-1]
    manifest = commit_dataset(config, recipe, plan, results)["train"]
    add_contact_sheet(config.output)
    archive = PictureArchive(DatasetPaths(config.output).contact_sheet, manifest.recipe_sha256)
    return {
        label: cv2.imdecode(np.frombuffer(picture.content, np.uint8), cv2.IMREAD_UNCHANGED)
        for label, picture in archive.read(archive.numbers).items()
    }


def samples_by_class(config: IngestConfig) -> dict[int, list[np.ndarray]]:
    """All training samples as (H, W, 3), by a loop over the shards."""
    samples: dict[int, list[np.ndarray]] = {}
    with open_dataset(config.output / "train") as dataset:
        for shard, info in enumerate(dataset.shards):
            images, labels = dataset.read(shard, 0, info.n_samples)
            for image, label in zip(images, labels, strict=True):
                samples.setdefault(int(label), []).append(np.moveaxis(image, 0, 2))
    return samples


@pytest.mark.parametrize("changes", [{}, {"shard_format": "hdf5"}, {"encoded": True}, {"shuffle": False}], ids=str)
def test_each_strip_has_the_first_samples_of_its_class(tmp_path: Path, changes: dict[str, Any]) -> None:
    source = write_images(tmp_path / "raw", 60)
    for bad in (0, 3, 4, 31):  # rejected: what comes after them moves up
        (tmp_path / "raw" / "img" / f"{bad}.png").write_bytes(b"no picture")
    config = IngestConfig(
        source=source, output=tmp_path / "out", samples_per_shard=10, max_rejected_fraction=0.5, **changes
    )
    strips = sheet(config, tmp_path / "work")
    expected = samples_by_class(config)
    assert sorted(strips) == sorted(expected) == [0, 1, 2]
    for label, strip in strips.items():
        cells = [strip[:, x : x + 8] for x in range(0, strip.shape[1], 9)]
        assert len(cells) == min(SAMPLES_OF_A_CLASS, len(expected[label]))
        for cell, sample in zip(cells, expected[label], strict=False):
            # Floats are stretched between their extremes, which are 0 and 255 within a few.
            np.testing.assert_allclose(cell, sample, atol=5 if sample.dtype == np.float32 else 0)


def test_a_sheet_of_large_pictures_stays_small(tmp_path: Path) -> None:
    source = write_images(tmp_path / "raw", 560, n_classes=70, size=(90, 60))  # noise, which nothing compresses
    config = IngestConfig(source=source, output=tmp_path / "out", test_fraction=0.0)
    strips = sheet(config, tmp_path / "work")
    assert len(strips) == 60
    assert {strip.shape[0] for strip in strips.values()} == {CELL_PIXELS}
    assert DatasetPaths(config.output).contact_sheet.stat().st_size < 1.1 * MOST_BYTES


def test_a_sheet_that_cannot_be_made_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(contact_sheet, "write_pictures", full)
    config = IngestConfig(source=write_images(tmp_path / "raw", 20), output=tmp_path / "out")
    with caplog.at_level(logging.WARNING):
        assert sheet(config, tmp_path / "work") == {}
    assert "No space left on device" in caplog.text
    assert manifest_path(config.output, "train").is_file()
