"""From an input's content to the sample that a bundle takes, on threads and some ahead of the net."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from deepspark_ops.errors import ConfigError
from deepspark_ops.export.input_steps import options_from_words
from deepspark_ops.export.manifest import BundleManifest, InputContract
from deepspark_ops.ingest.pixels import PixelRecipe
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.predict.inputs.record import Content, InputRecord, Values

_IMAGE_AXES = "N, H, W, C"


@dataclass(frozen=True)
class Sample:
    """An input as the bundle stores samples.

    Attributes:
        id: Of the input.
        values: Pixels (C, H, W), BGR, or the numbers of a sample in the bundle's shape; None if it cannot be used.
        error: Why it cannot; empty otherwise.
    """

    id: str
    values: Values | None
    error: str = ""


@dataclass(frozen=True)
class SampleForm:
    """What the samples of a bundle's one input are. Safe to share between threads.

    Attributes:
        contract: The input.
        recipe: What makes pixels of an image.
        crop_size: Side of the square that the bundle cuts out of an image, pixels; 0 for none.
    """

    contract: InputContract
    recipe: PixelRecipe
    crop_size: int = 0

    @classmethod
    def of(
        cls,
        contract: InputContract,
        *,
        crop_size: int = 0,
        resize_height: int = 0,
        resize_width: int = 0,
        max_pixel: int = 255,
    ) -> SampleForm:
        """Return the form; an image of another size than the bundle's becomes that size, as at ingestion.

        Args:
            contract: The bundle's input.
            crop_size: Of its preprocessing.
            resize_height: Rows that an image gets instead; 0: the bundle's, its own if the bundle takes any.
            resize_width: Columns, likewise.
            max_pixel: Largest value of a pixel; scaled to 255.

        Raises:
            ConfigError: The bundle takes one size alone, and another is asked for.
        """
        height, width = contract.shape[1:3] if contract.axes == _IMAGE_AXES else (0, 0)
        if resize_height and height > 0 and (resize_height, resize_width) != (height, width):
            msg = f"resize_height={resize_height}, resize_width={resize_width}: the bundle takes {height} x {width}"
            raise ConfigError(msg)
        recipe = PixelRecipe(
            gray=contract.channels == "gray",
            decode_color=True if contract.channels == "RGB" else None,
            max_pixel=max_pixel,
            height=resize_height or max(height, 0),
            width=resize_width or max(width, 0),
        )
        return cls(contract, recipe, crop_size)

    @property
    def takes_images(self) -> bool:
        """Whether samples are images, (C, H, W)."""
        return self.contract.axes == _IMAGE_AXES

    @property
    def n_values(self) -> int | None:
        """Numbers of a sample; None of an image."""
        return None if self.takes_images else math.prod(self.contract.shape[1:])

    @property
    def color(self) -> bool | None:
        """How compressed images are decoded: None as they are, True as BGR, False as gray."""
        return False if self.recipe.gray else self.recipe.decode_color

    def sample(self, record: InputRecord) -> Sample:
        """Return the record as a sample; what makes it useless becomes its error."""
        if record.content is None:
            return Sample(record.id, None, record.error)
        try:
            values = self._image(record.content) if self.takes_images else self._numbers(record.content)
            return Sample(record.id, values)
        except RecordError as error:
            return Sample(record.id, None, str(error))
        except OSError as error:
            return Sample(record.id, None, f"{error.strerror or error}: {error.filename or record.id}")

    def _image(self, content: Content) -> Values:
        found = content.read_bytes() if isinstance(content, Path) else content
        if not isinstance(found, bytes):
            found = self._pixels(found)
        image = self.recipe.apply(found)
        wanted = self.contract.shape[3]
        if image.shape[0] != wanted:
            msg = f"{image.shape[0]} channels, the bundle takes {wanted}"
            raise RecordError(msg)
        if min(image.shape[1:]) < self.crop_size:
            msg = f"{image.shape[1]} x {image.shape[2]} pixels, the bundle cuts {self.crop_size} x {self.crop_size} out"
            raise RecordError(msg)
        if self.contract.dtype == "uint8" and image.dtype != np.uint8:
            msg = f"pixels are {image.dtype}, the bundle takes uint8"
            raise RecordError(msg)
        return image

    def _pixels(self, found: Values) -> Values:
        """Return stored pixels as they are; the numbers of a row as the gray image that they are."""
        if found.ndim == 3:
            return found
        channels, height, width = (self.contract.shape[axis] for axis in (3, 1, 2))
        if channels != 1 or min(height, width) < 1 or found.size != height * width:
            msg = f"{found.size} numbers, the bundle takes images of shape {self.contract.shape[1:]}"
            raise RecordError(msg)
        image = found.reshape(1, height, width)
        if self.contract.dtype != "uint8":
            return image
        if not ((image >= 0) & (image <= 255) & (image == np.rint(image))).all():
            msg = "numbers that are no pixels, whole and from 0 to 255"
            raise RecordError(msg)
        return image.astype(np.uint8)

    def _numbers(self, content: Content) -> Values:
        if isinstance(content, (Path, bytes)):
            msg = f"an image, the bundle takes {self.n_values} numbers"
            raise RecordError(msg)
        if content.size != self.n_values:
            msg = f"{content.size} numbers, the bundle takes {self.n_values}"
            raise RecordError(msg)
        return content.reshape(self.contract.shape[1:])


def only_input(inputs: tuple[InputContract, ...], bundle: Path) -> InputContract:
    """Return a bundle's input.

    Raises:
        ConfigError: It has several; a row has one.
    """
    if len(inputs) != 1:
        names = ", ".join(contract.name for contract in inputs)
        msg = (
            f"bundle={bundle}: takes {len(inputs)} inputs ({names}); predict and features answer bundles that take one"
        )
        raise ConfigError(msg)
    return inputs[0]


def form_of_bundle(
    manifest: BundleManifest, bundle: Path, *, resize_height: int = 0, resize_width: int = 0, max_pixel: int = 255
) -> SampleForm:
    """Return what the samples of a bundle are; arguments as of ``SampleForm.of``.

    Raises:
        ConfigError: It takes several inputs, or not the size that is asked for.
        DataError: Its preprocessing has a step that this release does not know.
    """
    contract = only_input(manifest.inputs, bundle)
    return SampleForm.of(
        contract,
        crop_size=options_from_words(contract.preprocessing, bundle).crop_size,
        resize_height=resize_height,
        resize_width=resize_width,
        max_pixel=max_pixel,
    )


def sample_chunks(
    records: Iterable[InputRecord], sample_of: Callable[[InputRecord], Sample], *, size: int, n_threads: int
) -> Iterator[list[Sample]]:
    """Yield samples in the order of the records, ``size`` at a time; one chunk is made while another is used.

    Records are read by the calling thread, their content becomes samples on threads: at most two chunks are held.
    """
    rest = iter(records)
    with ThreadPoolExecutor(n_threads) as pool:

        def begin() -> list[Future[list[Sample]]]:
            # A task for each record would take as long as a small record itself.
            records = list(islice(rest, size))
            pieces = [records[piece::n_threads] for piece in range(min(n_threads, len(records)))]
            return [pool.submit(lambda piece: [sample_of(record) for record in piece], piece) for piece in pieces]

        ahead = begin()
        while ahead:
            now, ahead = ahead, begin()
            made = [piece.result() for piece in now]
            yield [made[row % len(made)][row // len(made)] for row in range(sum(map(len, made)))]
