"""What datasets record of their images."""

import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.shards.manifest import read_manifest
from deepspark_ops.shards.preprocessing import ImagePreprocessing, PixelSteps
from deepspark_ops.shards.reader import open_dataset
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images

OPTIONS = {"gray": True, "resize_height": 5, "resize_width": 6, "max_pixel": 255}


def ingested(folder, **options):
    config = IngestConfig(source=write_images(folder / "raw", 9), output=folder / "data", **options)
    ingest(config, folder / "work")
    return config.output / "test"


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        (OPTIONS, {"gray": True, "decode_color": True, "height": 5, "width": 6}),
        ({"scaled_decoding": True, "resize_height": 4, "resize_width": 4}, {"height": 4, "width": 4}),
    ],
)
def test_a_dataset_says_what_was_done_to_its_images(tmp_path, options, steps):
    split = ingested(tmp_path, **options)
    expected = PixelSteps(
        **{"decode_color": True, "dtype": "uint8", "scaled_decoding": "scaled_decoding" in options, **steps}
    )
    assert read_manifest(split).pixels == expected
    shape = (1 if "gray" in options else 3, steps["height"], steps["width"])
    assert open_dataset(split).preprocessing == ImagePreprocessing(**expected.model_dump(), sample_shape=shape)


def test_the_decoding_of_compressed_images_is_that_of_the_data_layer(tmp_path):
    split = ingested(tmp_path, encoded=True)
    assert open_dataset(split, color=True).preprocessing.read_color is True
    assert open_dataset(split).preprocessing.encoded
    assert open_dataset(ingested(tmp_path / "raw_pixels"), color=True).preprocessing.read_color is None
