import hashlib

import numpy as np

from caffe_import.data.sample_source import column_of
from deepspark_ops.evaluate.samples import Batch, SampleDigest

IMAGES = np.random.default_rng(1).integers(0, 256, (10, 3, 2, 2)).astype(np.uint8)
LABELS = np.arange(10)


def digest_of(*ranges, images=IMAGES):
    total = SampleDigest()
    for start, stop in ranges:
        total.add(Batch(start, stop - start, {"data": images[start:stop], "label": LABELS[start:stop]}, {}))
    return total


def test_hash_of_a_sample_is_that_of_its_stored_values():
    expected = [
        int.from_bytes(hashlib.blake2b(image.tobytes() + label.tobytes(), digest_size=8).digest(), "little")
        for image, label in zip(IMAGES, LABELS, strict=True)
    ]
    assert digest_of((0, 10)).content().tolist() == expected


def test_batches_and_ranges_in_any_order_give_one_digest():
    undivided = digest_of((0, 10))
    parts = digest_of((6, 8), (8, 10))
    parts.merge(digest_of((0, 3), (3, 6)))
    assert parts.text() == undivided.text()
    assert parts.content().tolist() == undivided.content().tolist()


def test_another_value_or_order_gives_another_digest():
    changed = IMAGES.copy()
    changed[4, 0, 0, 0] ^= 1
    assert digest_of((0, 10), images=changed).text() != digest_of((0, 10)).text()
    assert digest_of((0, 10), images=IMAGES[::-1].copy()).text() != digest_of((0, 10)).text()


def test_images_of_several_sizes_have_the_hashes_of_their_own_values():
    sizes = [(3, 2, 2), (3, 4, 1), (3, 1, 3)]
    images = [np.full(size, index, np.uint8) for index, size in enumerate(sizes)]
    expected = [
        int.from_bytes(hashlib.blake2b(image.tobytes() + label.tobytes(), digest_size=8).digest(), "little")
        for image, label in zip(images, LABELS, strict=False)
    ]
    assert digest_of((0, 3), images=column_of(images)).content().tolist() == expected
