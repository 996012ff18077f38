"""Records of a dataset about the preparation of its images."""

import cv2
import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.shards.manifest import read_manifest
from deepspark_ops.shards.preprocessing import ImagePreprocessing, PixelSteps
from deepspark_ops.shards.reader import open_dataset
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images

OPTIONS = {"gray": True, "resize_height": 5, "resize_width": 6, "max_pixel": 255}


def ingested_split(folder, **options):
    config = IngestConfig(source=write_images(folder / "raw", 9), output=folder / "data", **options)
    ingest(config, folder / "work")
    return config.output / "test"


def stored_range(split):
    with open_dataset(split) as dataset:
        images = [dataset.read(shard, 0, info.n_samples)[0] for shard, info in enumerate(dataset.shards)]
    return float(min(part.min() for part in images)), float(max(part.max() for part in images))


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        (OPTIONS, {"gray": True, "decode_color": True, "height": 5, "width": 6}),
        ({"scaled_decoding": True, "resize_height": 4, "resize_width": 4}, {"height": 4, "width": 4}),
    ],
)
def test_a_dataset_says_what_was_done_to_its_images(tmp_path, options, steps):
    split = ingested_split(tmp_path, **options)
    expected = PixelSteps(
        **{
            "decode_color": True,
            "dtype": "uint8",
            "scaled_decoding": "scaled_decoding" in options,
            "pixel_range": stored_range(split.parent / "train"),
            **steps,
        }
    )
    assert read_manifest(split).pixels == expected
    shape = (1 if "gray" in options else 3, steps["height"], steps["width"])
    assert open_dataset(split).preprocessing == ImagePreprocessing(**expected.model_dump(), sample_shape=shape)


def test_the_decoding_of_compressed_images_is_that_of_the_data_layer(tmp_path):
    split = ingested_split(tmp_path, encoded=True)
    assert open_dataset(split, color=True).preprocessing.read_color is True
    assert open_dataset(split).preprocessing.encoded
    assert open_dataset(ingested_split(tmp_path / "raw_pixels"), color=True).preprocessing.read_color is None


def test_steps_of_version_1_have_no_range_of_pixels():
    assert PixelSteps.model_validate({"version": 1, "max_pixel": 16}).pixel_range is None


def test_an_appended_version_has_the_range_of_all_its_shards(tmp_path):
    """Shards taken over by a version are not read again; the file beside a shard has the range."""
    folder = tmp_path / "raw"
    output = tmp_path / "data"
    for number, (least, largest) in enumerate([(100, 230), (90, 120)]):
        for at in range(6):
            image = np.full((4, 4, 3), least if at % 2 else largest, np.uint8)
            path = folder / "ab"[at % 2] / f"{number}{at}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), image)
        config = IngestConfig(source=folder, output=output, test_fraction=0.0)
        ingest(config, tmp_path / f"work{number}", goes_on=number > 0)
    manifest = read_manifest(output / "train")
    assert manifest.version == 2
    assert manifest.pixels.pixel_range == (90.0, 230.0) == stored_range(output / "train")
