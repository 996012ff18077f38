"""Warnings about requests with images of another range than the training images.

A request with at least ``FEWEST_IMAGES`` images is judged alone, and the answer has the warning. Smaller requests are
judged in groups of at least ``FEWEST_IMAGES`` images. The server's log has the warning about a group, since a group may
hold requests of several clients.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from deepspark_ops.predict.pixel_range import FEWEST_IMAGES, PixelWatch
from deepspark_ops.predict.samples import BundleForm, Parts

LOGGED_EVERY_S: Final = 600.0
_log = logging.getLogger(__name__)


class RequestPixels:
    """Judges requests one after the other. Safe to share between threads."""

    def __init__(self, form: BundleForm, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without images; the log gets at most a warning per ``LOGGED_EVERY_S`` seconds."""
        self._form = form
        self._clock = clock
        self._lock = threading.Lock()
        self._small_requests = PixelWatch(form)
        self._n_images = 0
        self._next_log_s = clock()

    def warnings(self, samples: Sequence[Parts]) -> list[str]:
        """Return and log the warnings about the range of a request's images."""
        if len(samples) >= FEWEST_IMAGES:
            watch = PixelWatch(self._form)
            watch.add(samples)
            remarks = watch.remarks()
            with self._lock:
                self._log(remarks)
            return [f"{n_images:,} images: {remark}" for remark, n_images in remarks.items()]
        with self._lock:
            self._small_requests.add(samples)
            self._n_images += len(samples)
            if self._n_images >= FEWEST_IMAGES:
                self._log(self._small_requests.remarks())
                self._small_requests, self._n_images = PixelWatch(self._form), 0
        return []

    def _log(self, remarks: dict[str, int]) -> None:
        now = self._clock()
        if remarks and now >= self._next_log_s:
            self._next_log_s = now + LOGGED_EVERY_S
            for remark, n_images in remarks.items():
                _log.warning("requests: %s images: %s", f"{n_images:,}", remark)
