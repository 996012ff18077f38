"""Defaults of all nets of this process: the device that computes a net, and random seeds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Final, Literal

from deepspark_ops.errors import ConfigError

Devices = Literal["auto", "cpu", "gpu"]
DEVICES: Final[tuple[Devices, ...]] = ("auto", "cpu", "gpu")


class Defaults:
    """The values; ``set_mode_gpu``, ``set_mode_cpu`` and ``set_random_seed`` change them.

    Attributes:
        devices: Where a net is computed.
    """

    def __init__(self) -> None:
        """Start with any device and random seeds."""
        self.devices: Devices = "auto"
        self._seeds: Iterator[int] = itertools.count(int.from_bytes(os.urandom(4), "big"))

    def seed_from(self, seed: int) -> None:
        """Fix the random numbers of new nets."""
        self._seeds = itertools.count(seed)

    def next_seed(self) -> int:
        """Return the seed of the next net."""
        return next(self._seeds)

    def chosen_devices(self, devices: str | None) -> Devices:
        """Return where a net is computed that asks for ``devices``.

        Raises:
            ConfigError: It asks for something else than ``DEVICES``.
        """
        if devices is None:
            return self.devices
        for name in DEVICES:
            if devices == name:
                return name
        msg = f"devices={devices!r}: allowed: {', '.join(map(repr, DEVICES))}"
        raise ConfigError(msg)


DEFAULTS: Final = Defaults()
