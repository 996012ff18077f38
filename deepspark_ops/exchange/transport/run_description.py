"""A server's description of its run for a joining worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from deepspark_ops.exchange.strategies.base import SINGLE_WORKER, LockMode, Option, Strategy, configure
from deepspark_ops.exchange.transport.compression import WireDtype
from deepspark_ops.exchange.transport.connection import Transport
from deepspark_ops.exchange.transport.link import Welcome
from deepspark_ops.param_vector import StatisticBlobs

if TYPE_CHECKING:
    from deepspark_ops.exchange.center.center import Center
    from deepspark_ops.exchange.settings import ExchangeSettings


@dataclass(frozen=True)
class RunDescription:
    """The settings of a run that workers need for exchanges.

    Attributes:
        n_params: Length of the parameter vector.
        n_workers: p.
        strategy_name: Strategy in use; with one worker ``SINGLE_WORKER`` unless the strategy needs the server.
        options: The strategy's own.
        moving_rate: alpha; 0 for the strategy's default by the number of present workers.
        chunk: Floats per chunk.
        statistics: BatchNorm's blobs.
        transport: How workers may reach the center.
        lock: The lock that is used.
        wire_dtype: Number format of pushes by socket.
        center_path: The center's file on the server's host; "None" for private memory.
        check_pushes: Whether nonsense is refused.
        center_token: Hexadecimal: who finds it in the file maps the same memory.
    """

    n_params: int
    n_workers: int
    strategy_name: str
    options: Mapping[str, Option]
    moving_rate: float
    chunk: int
    statistics: StatisticBlobs
    transport: Transport
    lock: LockMode
    wire_dtype: WireDtype
    center_path: str
    center_token: str
    check_pushes: bool

    @classmethod
    def of(cls, settings: ExchangeSettings, center: Center) -> RunDescription:
        """Describe a run."""
        name = settings.running_strategy().name
        return cls(
            n_params=settings.n_params,
            n_workers=settings.n_workers,
            strategy_name=name,
            options=dict(settings.options) if name != SINGLE_WORKER else {},
            moving_rate=settings.moving_rate or 0.0,
            chunk=settings.chunk,
            statistics=settings.statistics,
            transport=settings.transport,
            lock=settings.running_lock(),
            wire_dtype=settings.running_wire_dtype(),
            center_path=str(center.path),
            center_token=center.token.hex(),
            check_pushes=settings.check_pushes,
        )

    def welcome(self, clock: int, transport: str) -> Welcome:
        """Return the answer to a worker's join at this clock."""
        name = self.strategy_name
        alpha = self.moving_rate or self.strategy().default_moving_rate(self.n_workers)
        return Welcome(clock, self.n_params, self.n_workers, name, alpha, self.chunk, transport)

    def strategy(self) -> Strategy:
        """Return the strategy of a run with this number of workers."""
        return configure(self.strategy_name, self.options).for_workers(self.n_workers)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**vars(self), "statistics": self.statistics.to_json()}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> RunDescription:
        """Inverse of ``to_json``."""
        values = {field.name: plain[field.name] for field in fields(cls)}
        return cls(**{**values, "statistics": StatisticBlobs.from_json(plain["statistics"])})
