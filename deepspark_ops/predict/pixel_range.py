"""Do the images of a call have the range of the training images? A net answers wrongly if they do not.

The judgement is on all images of a call together: a single dark picture is no mistake. At least ``FEWEST_IMAGES``
images with more than one value must have been seen, and the range of all of them must be at most a quarter of the range
of the training images, or at least four times as wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from deepspark_ops.predict.record import Values
from deepspark_ops.predict.samples import BundleForm, Parts, SampleForm
from deepspark_ops.shards.preprocessing import PixelRange

FEWEST_IMAGES: Final = 8
_WIDER: Final = 4.0
"""The wider range is so many times as wide as the other one, at least."""
_LARGEST_BYTE: Final = 255


@dataclass(frozen=True)
class SeenPixels:
    """The pixels of some images, after the steps of ingestion.

    Attributes:
        n_images: Images with more than one value.
        least: Smallest pixel of these images.
        largest: Largest pixel.
    """

    n_images: int = 0
    least: float = math.inf
    largest: float = -math.inf

    def with_image(self, pixels: Values) -> SeenPixels:
        """Return the count with one image more."""
        least, largest = float(pixels.min()), float(pixels.max())
        if not least < largest:  # of one value, or not a number
            return self
        return self.merge(SeenPixels(1, least, largest))

    def merge(self, other: SeenPixels) -> SeenPixels:
        """Return the count of both."""
        return SeenPixels(
            self.n_images + other.n_images, min(self.least, other.least), max(self.largest, other.largest)
        )


def merged_pixels(parts: Iterable[Mapping[str, SeenPixels]]) -> dict[str, SeenPixels]:
    """Return the pixels of all parts of a call, by the bundle's input."""
    merged: dict[str, SeenPixels] = {}
    for part in parts:
        for name, seen in part.items():
            merged[name] = merged.get(name, SeenPixels()).merge(seen)
    return merged


class PixelWatch:
    """Collects the range of the images of a call. One thread at a time.

    Attributes:
        seen: By the name of the bundle's input; only inputs whose training range is known.
    """

    def __init__(self, form: BundleForm, seen: dict[str, SeenPixels] | None = None) -> None:
        """Go on from what is seen already; ``seen`` is kept up to date."""
        self.seen = {} if seen is None else seen
        self._watched = [
            (position, form_of_input, images.pixel_range, images.dtype == "uint8")
            for position, form_of_input in enumerate(form.inputs)
            if (images := form_of_input.contract.images) is not None and images.pixel_range is not None
        ]

    def add(self, samples: Iterable[Parts]) -> None:
        """Take the next samples of the call."""
        if not self._watched:
            return
        for sample in samples:
            for position, form, trained, are_bytes in self._watched:
                name = form.contract.name
                before = self.seen.get(name, SeenPixels())
                if not _fits_for_good(before, trained, are_bytes=are_bytes):
                    self.seen[name] = before.with_image(sample[position])

    def remarks(self) -> dict[str, int]:
        """Return a remark for each input with images of another range -> how many images these are."""
        remarks: dict[str, int] = {}
        for _, form, trained, _ in self._watched:
            seen = self.seen.get(form.contract.name, SeenPixels())
            if text := _remark(seen, form, trained):
                remarks[text] = seen.n_images
        return remarks


def _fits_for_good(seen: SeenPixels, trained: PixelRange, *, are_bytes: bool) -> bool:
    """Can no further image make the range a wrong one? Then images cost nothing more."""
    width = trained[1] - trained[0]
    return are_bytes and seen.largest - seen.least > width / _WIDER and width * _WIDER > _LARGEST_BYTE


def _remark(seen: SeenPixels, form: SampleForm, trained: PixelRange) -> str:
    """Return what differs and what to do; empty if the images have the range of the training images."""
    width, trained_width = seen.largest - seen.least, trained[1] - trained[0]
    if seen.n_images < FEWEST_IMAGES or not trained_width or trained_width / _WIDER < width < trained_width * _WIDER:
        return ""
    lead = (
        f"pixels are {seen.least:g} to {seen.largest:g}, those of the training images were {trained[0]:g} to"
        f" {trained[1]:g}; answers may be wrong"
    )
    if width > trained_width:
        return f"{lead}; give images of the training images' range, or train on images of this range"
    if seen.least < 0 or trained[0] < 0 or not _LARGEST_BYTE / 2 < trained[1] <= _LARGEST_BYTE:
        return f"{lead}; scale the images as the training images were scaled"
    raw = max(1, round(seen.largest * form.recipe.max_pixel / _LARGEST_BYTE))
    return (
        f"{lead}; if {raw} is the largest pixel that such images can have, max_pixel={raw} (--max-pixel {raw}) scales"
        " them; ingested datasets and lists of pixels must have been scaled before"
    )
