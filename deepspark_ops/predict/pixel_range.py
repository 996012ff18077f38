"""Comparison of the pixels of a call with the range of the training images. Another range gives wrong answers.

The judgement is on all images of a call together: a single dark picture is no mistake. At least ``FEWEST_IMAGES``
images with more than one value must have been seen, and their common range must be at most a quarter of the range
of the training images, or at least four times as wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deepspark_ops.predict.record import Values
from deepspark_ops.predict.samples import BundleForm, Parts, SampleForm
from deepspark_ops.shards.preprocessing import PixelRange

FEWEST_IMAGES: Final = 8
_WIDER: Final = 4.0
"""The wider range has at least this multiple of the width of the other range."""
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


class PixelWatch:
    """Collects the range of the images of a call. One thread at a time.

    Attributes:
        pixels: By the name of the bundle's input, for inputs with a known training range.
    """

    def __init__(self, form: BundleForm, pixels: dict[str, SeenPixels] | None = None) -> None:
        """Go on from ``pixels``, which ``add`` changes in place."""
        self.pixels = {} if pixels is None else pixels
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
                pixels = self.pixels.get(name, SeenPixels())
                if not _fits_for_good(pixels, trained, are_bytes=are_bytes):
                    self.pixels[name] = pixels.with_image(sample[position])

    def remarks(self) -> dict[str, int]:
        """Return a remark for each input with images of another range -> number of these images."""
        remarks: dict[str, int] = {}
        for _, form, trained, _ in self._watched:
            pixels = self.pixels.get(form.contract.name, SeenPixels())
            if text := _remark(pixels, form, trained):
                remarks[text] = pixels.n_images
        return remarks


def _fits_for_good(pixels: SeenPixels, trained: PixelRange, *, are_bytes: bool) -> bool:
    """Return whether no further image can make the range a wrong range; further images then cost nothing."""
    width = trained[1] - trained[0]
    return are_bytes and pixels.largest - pixels.least > width / _WIDER and width * _WIDER > _LARGEST_BYTE


def _remark(pixels: SeenPixels, form: SampleForm, trained: PixelRange) -> str:
    """Return the difference and the remedy; empty if the images have the range of the training images."""
    width, trained_width = pixels.largest - pixels.least, trained[1] - trained[0]
    if pixels.n_images < FEWEST_IMAGES or not trained_width or trained_width / _WIDER < width < trained_width * _WIDER:
        return ""
    lead = (
        f"pixels are {pixels.least:g} to {pixels.largest:g}, those of the training images were {trained[0]:g} to"
        f" {trained[1]:g}; answers may be wrong"
    )
    if width > trained_width:
        return f"{lead}; give images of the training images' range, or train on images of this range"
    if pixels.least < 0 or trained[0] < 0 or not _LARGEST_BYTE / 2 < trained[1] <= _LARGEST_BYTE:
        return f"{lead}; scale the images as the training images were scaled"
    raw = max(1, round(pixels.largest * form.recipe.steps.max_pixel / _LARGEST_BYTE))
    return (
        f"{lead}; if {raw} is the largest pixel that such images can have, max_pixel={raw} (--max-pixel {raw}) scales"
        " them; ingested datasets and lists of pixels must have been scaled before"
    )
