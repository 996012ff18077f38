"""Records decoded together against the same records decoded one by one."""

import cv2
import numpy as np
import pytest

from deepspark_ops.ingest.images.decoder_messages import decoder_messages
from deepspark_ops.ingest.images.pixels import PixelRecipe
from deepspark_ops.ingest.images.record_blocks import RecordBlocks
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.shards.preprocessing import PixelSteps


def pictures(n, size=16):
    return [np.random.default_rng(i).integers(0, 256, (size, size, 3)).astype(np.uint8) for i in range(n)]


def as_jpegs(images):
    return [cv2.imencode(".jpg", image)[1].tobytes() for image in images]


def decoded_records(records, *, together, encoded=False, recipe=None):
    """Return the decoded records in order, and the rejected records; None stands for a missing file."""
    rejected = []

    def read(number):
        if records[number] is None:
            message = "no such file"
            raise RecordError(message)
        return records[number]

    with decoder_messages() as messages:
        blocks = RecordBlocks(
            read,
            recipe or PixelRecipe(PixelSteps(decode_color=True)),
            messages,
            (3, 16, 16),
            "uint8",
            encoded,
            lambda number, error: rejected.append((number, str(error))),
        )
        decoded = [
            (
                number,
                image.tobytes(),
                image.shape,
                None if stored is None else bytes(stored),
                block.are_pictures,
                complaint,
            )
            for block in blocks.of(len(records), together)
            for number, image, stored in zip(block.numbers, block.images, block.compressed, strict=True)
            for complaint in [block.complaint]
        ]
    return decoded, rejected


def with_faults():
    records = as_jpegs(pictures(40))
    records[3] = None
    records[9] = records[9][:-2] + b"junk" + records[9][-2:]  # the decoder complains, and gives pixels
    records[21] = b"no image"
    records[22] = as_jpegs(pictures(1, size=20))[0]
    records[30] = pictures(1)[0].transpose(2, 0, 1).copy()
    return records


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("together", [4, 16, 64])
def test_records_decoded_together_equal_single_records(together, encoded):
    records = with_faults()
    decoded, rejected = decoded_records(records, together=together, encoded=encoded)
    assert (decoded, rejected) == decoded_records(records, together=1, encoded=encoded)
    assert [number for number, _ in rejected] == [3, 21, 22]
    assert [number for number, *_, complaint in decoded if complaint] == [9]
    assert [number for number, *_ in decoded] == [i for i in range(40) if i not in {3, 21, 22}]


def test_pixels_are_opencvs_and_files_keep_their_bytes():
    images = pictures(20)
    records = as_jpegs(images)
    decoded, rejected = decoded_records(records, together=8, encoded=True)
    assert rejected == []
    assert [stored for _, _, _, stored, *_ in decoded] == records
    expected = [cv2.imdecode(np.frombuffer(record, np.uint8), cv2.IMREAD_COLOR).tobytes() for record in records]
    assert [pixels for _, pixels, *_ in decoded] == expected


@pytest.mark.parametrize("options", [{"gray": True}, {"height": 8, "width": 12}, {"max_pixel": 255}, {}])
def test_quick_picture_is_the_picture(options):
    recipe = PixelRecipe(PixelSteps(decode_color=None, **options))
    for record in [*as_jpegs(pictures(3)), cv2.imencode(".png", pictures(1)[0][:, :, 0])[1].tobytes()]:
        np.testing.assert_array_equal(recipe.quick_picture()(record), recipe.picture(record))
    deep = cv2.imencode(".png", np.zeros((4, 4), np.uint16))[1].tobytes()
    for record in (b"", b"no image", *([] if recipe.steps.gray else [deep])):
        with pytest.raises(RecordError) as quick:
            recipe.quick_picture()(record)
        with pytest.raises(RecordError) as slow:
            recipe.picture(record)
        assert str(quick.value) == str(slow.value)
