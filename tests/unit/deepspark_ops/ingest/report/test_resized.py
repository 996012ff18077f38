"""The sentence about a resize against pictures of known sizes."""

import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.report.profile import resize_text
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_idx, write_images


def test_pictures_of_one_size_and_of_several(tmp_path):
    one_size = write_images(tmp_path / "one", 30, size=(40, 48))
    config = IngestConfig(source=one_size, output=tmp_path / "a", resize_height=28, resize_width=20)
    ingest(config, tmp_path / "work")
    assert resize_text(tmp_path / "a") == "pictures of 40x48 become 28x20 (height x width)"
    write_images(tmp_path / "one" / "test", 30, size=(9, 50))
    larger = config.model_copy(update={"test_source": tmp_path / "one" / "test" / "list.txt", "output": tmp_path / "b"})
    ingest(larger, tmp_path / "work")
    assert resize_text(tmp_path / "b") == "pictures of 9x50 to 40x48 become 28x20 (height x width)"


@pytest.mark.parametrize("options", [{}, {"resize_height": 40, "resize_width": 48}])
def test_nothing_is_said_where_no_size_changes(tmp_path, options):
    source = write_images(tmp_path / "raw", 30, size=(40, 48))
    ingest(IngestConfig(source=source, output=tmp_path / "d", **options), tmp_path / "work")
    assert resize_text(tmp_path / "d") == ""


def test_pixels_that_are_not_compressed_have_a_size_too(tmp_path):
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.arange(30) % 3)
    source = write_idx(tmp_path / "train-images-idx3-ubyte", np.zeros((30, 9, 8)))
    ingest(IngestConfig(source=source, output=tmp_path / "d", resize_height=28, resize_width=28), tmp_path / "work")
    assert resize_text(tmp_path / "d") == "pictures of 9x8 become 28x28 (height x width)"
