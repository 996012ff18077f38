"""A dataset's object: samples as they are in the shards, the contact sheet, and what is opened as what."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import cv2
import numpy as np
import pytest

import deepspark_ops as ds
from deepspark_ops.api.results.dataset import Samples
from tests.integration.small_run import CLASS_NAMES, make_dataset, make_samples

pytestmark = pytest.mark.tf  # small_run trains, too


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data<set>")
    make_dataset(root)
    return root


def stored(n: int) -> tuple[np.ndarray, np.ndarray]:
    images, labels = make_samples(n, seed=1)
    return images, labels


def test_samples_are_rows_of_the_shards_in_rgb(folder: Path) -> None:
    dataset = ds.Dataset(folder)
    assert {name: split.n_samples for name, split in dataset.splits.items()} == {"train": 160, "test": 53}
    assert dataset.class_names == CLASS_NAMES
    samples = dataset.sample(200)
    assert repr(samples) == f"Samples({len(samples)} of shape {samples.values.shape[1:]} from {samples.source!r})"
    images, labels = stored(160)
    assert np.array_equal(samples.values, images)
    assert np.array_equal(samples.labels, labels)
    assert samples.names == tuple(CLASS_NAMES[label] for label in labels)
    assert np.array_equal(samples.images, images[:, [2, 1, 0]].transpose(0, 2, 3, 1))


def test_equal_seeds_draw_equal_samples_without_repetition(folder: Path) -> None:
    dataset = ds.Dataset(folder)
    first, repeated, other = dataset.sample(16), dataset.sample(16), dataset.sample(16, seed=1)
    assert len(first) == 16
    assert np.array_equal(first.values, repeated.values)
    assert not np.array_equal(first.values, other.values)
    assert len({image.tobytes() for image in first.values}) == 16


@pytest.mark.parametrize(
    ("options", "message"),
    [({"n": 0}, "n=0: allowed: a whole number"), ({"split": "no"}, "'no': .* has train, t")],
)
def test_wrong_choice_of_samples(folder: Path, options: dict, message: str) -> None:
    with pytest.raises(ds.ConfigError, match=message):
        ds.Dataset(folder).sample(**options)


@pytest.mark.parametrize("of_samples", [False, True])
def test_contact_sheet_shows_the_drawn_samples_with_escaped_names(folder: Path, of_samples: bool) -> None:
    dataset = ds.Dataset(folder)
    samples = dataset.sample(16)
    html = (samples if of_samples else dataset)._repr_html_()
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^"]+)"', html)
    assert len(pictures) == 16
    for (content, name), image, expected in zip(pictures, samples.images, samples.names, strict=True):
        shown = cv2.imdecode(np.frombuffer(base64.b64decode(content), np.uint8), cv2.IMREAD_UNCHANGED)
        assert np.array_equal(shown[..., ::-1], image)
        assert name == expected.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert "<left>" not in html


def test_open_finds_a_dataset(folder: Path) -> None:
    assert ds.open(folder) == ds.Dataset(folder)
    with pytest.raises(ds.ConfigError, match="holds none of these; allowed: a folder with a dataset"):
        ds.open(folder / "train")


def test_numbers_of_a_table_are_below_the_names_of_its_columns() -> None:
    names = tuple(f"f{at}" for at in range(10))
    samples = Samples(np.arange(20.0).reshape(2, 10), np.array([0, 1]), ("a", "b"), "d (train)", names)
    assert str(samples).splitlines()[2:4] == [
        "label  f0  f1  f2  f3  f4  f5  f6  f7  ...", "a      0   1   2   3   4   5   6   7   ...",
    ]  # fmt: skip
