"""From an input's content to the sample that a bundle takes, on threads and some ahead of the net."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from deepspark_ops.config.commands.predict import BundleInputConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.export.input_steps import FILL, options_from_words, table_from_words
from deepspark_ops.export.manifest import BundleManifest, InputContract
from deepspark_ops.ingest.images.pixels import PixelRecipe
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.predict.record import Content, InputRecord, Values

_IMAGE_AXES = "N, H, W, C"


Parts = tuple[Values, ...]
"""A sample: for each of the bundle's inputs, in their order, pixels (C, H, W), BGR, or numbers in the input's shape."""


@dataclass(frozen=True)
class Sample:
    """An input as the bundle stores samples.

    Attributes:
        id: Of the input.
        values: What the bundle is given; None if it cannot be used.
        error: Why it cannot; empty otherwise.
    """

    id: str
    values: Parts | None
    error: str = ""


@dataclass(frozen=True)
class SampleForm:
    """What one input of a bundle takes. Safe to share between threads.

    Attributes:
        contract: The input.
        recipe: What makes pixels of an image.
        crop_size: Side of the square that the bundle cuts out of an image, pixels; 0 for none.
        feature_names: What each number of a sample is called in the table that the net was trained on; empty if it was
            not.
    """

    contract: InputContract
    recipe: PixelRecipe
    crop_size: int = 0
    feature_names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        contract: InputContract,
        *,
        crop_size: int = 0,
        resize_height: int = 0,
        resize_width: int = 0,
        max_pixel: int = 255,
        feature_names: tuple[str, ...] = (),
    ) -> SampleForm:
        """Return the form; an image of another size than the bundle's becomes that size, as at ingestion.

        Args:
            contract: The bundle's input.
            crop_size: Of its preprocessing.
            resize_height: Rows that an image gets instead; 0: the bundle's, its own if the bundle takes any.
            resize_width: Columns, likewise.
            max_pixel: Largest value of a pixel; scaled to 255.
            feature_names: As the attribute.

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
        return cls(contract, recipe, crop_size, feature_names)

    @property
    def takes_images(self) -> bool:
        """Whether samples are images, (C, H, W)."""
        return self.contract.axes == _IMAGE_AXES

    @property
    def n_values(self) -> int | None:
        """Numbers of a sample; None of an image."""
        return None if self.takes_images else math.prod(self.contract.shape[1:])

    @property
    def may_miss(self) -> bool:
        """May a number be missing, NaN? The bundle fills it then."""
        return FILL in self.contract.preprocessing

    @property
    def color(self) -> bool | None:
        """How compressed images are decoded: None as they are, True as BGR, False as gray."""
        return False if self.recipe.gray else self.recipe.decode_color

    def values(self, content: Content) -> Values:
        """Return a content as this input takes it.

        Raises:
            RecordError: It cannot be used.
            OSError: Its file cannot be read.
        """
        return self._image(content) if self.takes_images else self._numbers(content)

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
        values = content.reshape(self.contract.shape[1:])
        if problem := self.unusable_number(values):
            raise RecordError(problem)
        return values

    def unusable_number(self, values: Values) -> str:
        """Return which of a sample's numbers the bundle cannot use, and why; empty if there is none.

        NaN is a missing number; others that are not finite are never taken.
        """
        is_bad = np.isinf(values) if self.may_miss else ~np.isfinite(values)
        if not is_bad.any():
            return ""
        flat = values.reshape(-1)
        at = int(is_bad.argmax())
        name = f"{self.feature_names[at]} (number {at})" if at < len(self.feature_names) else f"number {at}"
        if np.isnan(flat[at]):
            return f"{name} is missing, and the bundle does not fill missing numbers"
        return f"{name} is not finite in float32"


@dataclass(frozen=True)
class BundleForm:
    """What the samples of a bundle are. Safe to share between threads.

    Attributes:
        inputs: The form of each input, in the bundle's order; at least one.
    """

    inputs: tuple[SampleForm, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs' names."""
        return tuple(form.contract.name for form in self.inputs)

    def only_input(self, bundle: Path) -> SampleForm:
        """Return the form of a bundle's one input.

        Raises:
            ConfigError: It has several; what is read gives one value a row.
        """
        if len(self.inputs) != 1:
            msg = (
                f"bundle={bundle}: takes {len(self.inputs)} inputs ({', '.join(self.names)}); only a table (Parquet,"
                " CSV, Spark) can give them, a column for each; input_columns says which, e.g."
                f" {self.names[0]}=COLUMN,{self.names[1]}=COLUMN"
            )
            raise ConfigError(msg)
        return self.inputs[0]

    def sample(self, record: InputRecord) -> Sample:
        """Return the record as a sample; what makes it useless becomes its error."""
        if record.content is None:
            return Sample(record.id, None, record.error)
        several = isinstance(record.content, Mapping)
        first = self.inputs[0].contract.name
        given = record.content if isinstance(record.content, Mapping) else {first: record.content}
        parts: list[Values] = []
        for form in self.inputs:
            name = form.contract.name
            where = f'input "{name}": ' if several else ""
            try:
                if (content := given.get(name)) is None:
                    return Sample(record.id, None, f'input "{name}" is missing')
                parts.append(form.values(content))
            except RecordError as error:
                return Sample(record.id, None, f"{where}{error}")
            except OSError as error:
                return Sample(record.id, None, f"{where}{error.strerror or error}: {error.filename or record.id}")
        return Sample(record.id, tuple(parts))


def form_of_bundle(
    manifest: BundleManifest, bundle: Path, *, resize_height: int = 0, resize_width: int = 0, max_pixel: int = 255
) -> BundleForm:
    """Return what the samples of a bundle are; arguments as of ``SampleForm.of``.

    Raises:
        ConfigError: An input does not take the size that is asked for.
        DataError: Its preprocessing has a step that this release does not know.
    """
    tables = [table_from_words(contract.preprocessing, bundle) for contract in manifest.inputs]
    return BundleForm(
        tuple(
            SampleForm.of(
                contract,
                crop_size=options_from_words(contract.preprocessing, bundle).crop_size,
                resize_height=resize_height,
                resize_width=resize_width,
                max_pixel=max_pixel,
                feature_names=() if table is None else tuple(table.feature_names()),
            )
            for contract, table in zip(manifest.inputs, tables, strict=True)
        )
    )


def form_of_config(config: BundleInputConfig, manifest: BundleManifest) -> BundleForm:
    """Return what the samples of a config's bundle are; errors as of ``form_of_bundle``."""
    return form_of_bundle(
        manifest,
        config.bundle,
        resize_height=config.resize_height,
        resize_width=config.resize_width,
        max_pixel=config.max_pixel,
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
