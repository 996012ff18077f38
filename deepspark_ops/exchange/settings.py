"""Settings of an exchange, from the driver, as plain JSON; no secret, no address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deepspark_ops.errors import ConfigError, ProtocolError
from deepspark_ops.exchange.center.memory import CenterShape
from deepspark_ops.exchange.rounds.solver_step import CenterSolver
from deepspark_ops.exchange.state.grants import Schedule
from deepspark_ops.exchange.state.leases import DatasetOrder
from deepspark_ops.exchange.strategies.base import (
    LOCK_MODES,
    LockMode,
    Option,
    Strategy,
    check_moving_rate,
    configure,
)
from deepspark_ops.exchange.transport.compression import WIRE_DTYPES, WireDtype
from deepspark_ops.exchange.transport.connection import Transport
from deepspark_ops.param_vector import CHUNK_FLOATS, StatisticBlobs, chunk_ranges

JOURNAL_FILE = "exchange.journal"


@dataclass(frozen=True)
class ExchangeSettings:
    """One exchange.

    Attributes:
        run_id: Names the run in every frame; up to 64 bits, not a secret.
        n_params: Length of the parameter vector.
        n_workers: p; worker ids are 0 to p-1.
        schedule: Steps, tests, snapshots.
        work: The run's scratch folder: pending snapshots, the center where shared memory has no room.
        events: The run's ``events.jsonl``.
        strategy: Name.
        moving_rate: alpha; None takes the strategy's default.
        options: The strategy's own options by name.
        datasets: Name -> how it is read.
        lease_state: Data position of a snapshot (``complete.json``, key ``leases``) to go on from.
        statistics: BatchNorm's blobs.
        solver: What the server needs of the solver, where the strategy solves at the center.
        chunk: Floats per chunk.
        lock: ``none``: fastest, pushes that overlap may lose a part. ``striped``: every push survives. ``full``: the
            center is also of one moment. A strategy that needs more than is given gets what it needs.
        transport: ``auto``: shared memory for workers on the server's host.
        wire_dtype: Number format of pushes by socket; see ``transport.compression``.
        n_servers: Server processes, each with a key range of the center; the first one holds the run state.
        watch_rest_s: Pause between two measurements of lost updates, of a second or so each; at 0 pushes are
            added up all the time, which takes an exchange of a small net 3 % longer.
        check_pushes: Whether pushes that are not finite, or absurdly long, are refused; see ``center.push_check``.
        journal_folder: Where the journal is, on the first server's own disk: each answer waits for it; None: ``work``.
        grant_timeout_s: A worker silent for this long loses its grant.
        exchange_timeout_s: Longest wait of a worker for the server, and of the server for the rest of a frame.
    """

    run_id: int
    n_params: int
    n_workers: int
    schedule: Schedule
    work: Path
    events: Path
    strategy: str = "easgd"
    moving_rate: float | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    datasets: Mapping[str, DatasetOrder] = field(default_factory=dict)
    lease_state: Mapping[str, Any] = field(default_factory=dict)
    statistics: StatisticBlobs = field(default_factory=StatisticBlobs)
    solver: CenterSolver | None = None
    chunk: int = CHUNK_FLOATS
    lock: LockMode = "none"
    transport: Transport = "auto"
    wire_dtype: WireDtype = "float32"
    n_servers: int = 1
    watch_rest_s: float = 4.0
    check_pushes: bool = True
    journal_folder: Path | None = None
    grant_timeout_s: float = 120.0
    exchange_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse values outside their range.

        Raises:
            ConfigError: Names the field and what is allowed.
        """
        for name in ("n_params", "n_workers", "chunk", "n_servers"):
            if getattr(self, name) < 1:
                msg = f"{name}={getattr(self, name)}: must be at least 1"
                raise ConfigError(msg)
        for name in ("grant_timeout_s", "exchange_timeout_s"):
            if getattr(self, name) <= 0:
                msg = f"{name}={getattr(self, name):g}: must be above 0"
                raise ConfigError(msg)
        if not 0 <= self.run_id < 2**64:
            msg = f"run_id={self.run_id}: must fit 64 bits"
            raise ConfigError(msg)
        choices = {"transport": ("auto", "shm", "socket"), "wire_dtype": WIRE_DTYPES, "lock": LOCK_MODES}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                msg = f'{name}="{getattr(self, name)}"; allowed: {", ".join(allowed)}'
                raise ConfigError(msg)
        self._check_together()

    def _check_together(self) -> None:
        if self.lock == "full" and self.n_servers > 1:
            msg = f"n_servers={self.n_servers} with lock=full: one lock holds a whole exchange; use lock=striped"
            raise ConfigError(msg)
        check_moving_rate(configure(self.strategy, self.options), self.moving_rate, self.n_workers)
        if self.running_strategy().solves_at_center and self.solver is None:
            msg = f"solver=None: strategy {self.strategy} solves at the center; give the solver"
            raise ConfigError(msg)

    def running_strategy(self) -> Strategy:
        """Return the strategy that runs with this number of workers."""
        return configure(self.strategy, self.options).for_workers(self.n_workers)

    def running_lock(self) -> LockMode:
        """Return the stricter lock of the settings' lock and the strategy's lock."""
        return max(self.lock, self.running_strategy().lock, key=LOCK_MODES.index)

    def running_wire_dtype(self) -> WireDtype:
        """Return the type of pushed numbers; with one worker float32, for an exact copy of the worker."""
        return self.wire_dtype if self.n_workers > 1 else "float32"

    def running_servers(self) -> int:
        """Return the number of servers; every server has a chunk."""
        return min(self.n_servers, len(chunk_ranges(self.n_params, self.chunk)))

    def center_shape(self) -> CenterShape:
        """Return the sizes of the center's parts."""
        n_chunks = len(chunk_ranges(self.n_params, self.chunk))
        strategy = self.running_strategy()
        vectors = strategy.server_vectors
        if strategy.history_at_center and self.solver is not None:
            vectors += self.solver.n_slots
        return CenterShape(self.n_params, self.n_workers, n_chunks, vectors, self.running_servers())

    def check_worker(self, worker: int) -> None:
        """Refuse an unknown worker id.

        Raises:
            ProtocolError: Names the ids it has.
        """
        if not 0 <= worker < self.n_workers:
            msg = f"worker {worker}: this run has n_workers={self.n_workers}, ids 0 to n_workers-1"
            raise ProtocolError(msg)

    def alpha(self) -> float:
        """Return the moving rate in use."""
        return self.moving_rate or configure(self.strategy, self.options).default_moving_rate(self.n_workers)

    def journal(self) -> Path:
        """Return the file of the journal."""
        return (self.journal_folder or self.work) / JOURNAL_FILE

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        plain = asdict(self)
        plain["statistics"] = self.statistics.to_json()
        plain["solver"] = None if self.solver is None else self.solver.to_json()
        plain["work"], plain["events"] = str(self.work), str(self.events)
        plain["journal_folder"] = None if self.journal_folder is None else str(self.journal_folder)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ExchangeSettings:
        """Inverse of ``to_json``."""
        fields = dict(plain)
        fields["schedule"] = Schedule(**fields["schedule"])
        fields["datasets"] = {
            name: DatasetOrder(**{**order, "shard_samples": tuple(order["shard_samples"])})
            for name, order in fields["datasets"].items()
        }
        fields["statistics"] = StatisticBlobs.from_json(fields["statistics"])
        fields["solver"] = None if fields["solver"] is None else CenterSolver.from_json(fields["solver"])
        fields["work"], fields["events"] = Path(fields["work"]), Path(fields["events"])
        fields["journal_folder"] = None if fields["journal_folder"] is None else Path(fields["journal_folder"])
        return cls(**fields)
