"""The interface of the strategies: arithmetic of an exchange in numpy.

A strategy is one file ``strategies/<name>.py`` with one frozen object ``STRATEGY``. No other file names a strategy: a
new file adds a strategy to the command line, the DAG's form and the server.
"""

from __future__ import annotations

import dataclasses
import difflib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.rounds.round_closing import ChunkwiseCloser, RoundCloser
from deepspark_ops.param_vector import Vector

if TYPE_CHECKING:
    from deepspark_ops.exchange.rounds.solver_step import CenterSolver

Option = bool | int | float | str
SINGLE_WORKER = "single_worker"
"""Name of the strategy with one worker; users do not choose this strategy."""


class ExchangeContext(NamedTuple):
    """The numbers of one exchange. A tuple is fast to make: the exchange of a small net takes 0.2 ms.

    Attributes:
        n_workers: p, workers that are there.
        moving_rate: alpha, dimensionless; 0 takes the strategy's default for p. Unused without an elastic term.
        staleness: Exchanges by other workers since this worker's last pull.
        ended_before: Exchanges that this worker ended before.
        total: Exchanges that all workers ended before.
        others_begun: Exchanges of other workers that had begun when this exchange began.
        others_open: The part of ``others_begun`` that had not ended; ``Center.end`` counts overlaps by both.
        session: Number of the process whose exchange this is; see ``Center.check_session``.
    """

    n_workers: int
    moving_rate: float = 0.0
    staleness: int = 0
    ended_before: int = 0
    total: int = 0
    others_begun: int = 0
    others_open: int = 0
    session: int = 0


class RootLevel(NamedTuple):
    """The exchange between the center of a host and the root, the server's center, in a tree of centers.

    Attributes:
        comm_period: tau of a host: exchanges of each of its workers between two exchanges of host and root; 0: by
            measured times, see ``RootPeriod``.
        moving_rate: alpha of a host; 0 for the strategy's default by the number of the root's children.
    """

    comm_period: int
    moving_rate: float


BETA = 0.9
"""Sum of the moving rates of workers that read the same center (Zhang, Choromanska, LeCun 2015)."""
LockMode = Literal["none", "striped", "full"]
LOCK_MODES: tuple[LockMode, ...] = ("none", "striped", "full")


@dataclass(frozen=True)
class Strategy:
    """How workers and center exchange; frozen, without state, pure functions on chunks.

    The options of a strategy are fields with defaults; ``configure`` sets them by name.

    Exchange of one chunk: ``worker_chunk`` computes a worker's push, ``server_chunk`` applies the push. The process
    that maps the center runs ``server_chunk``: the server for a socket, the worker in shared memory. A push of zeros
    changes nothing (but for ``single_worker``); in this way BatchNorm's statistics are kept out of the push.

    Attributes:
        name: As the user writes it; the file's stem.
        aliases: Other names of the same thing.
        round: When the center changes: at each push, after several, or when all live workers have pushed.
        pulls: When the worker reads the center's chunk. ``before``: for ``worker_chunk``, which computes the new
            parameters from it. ``after`` its push, ``after_round``: the new parameters are the center. ``never``.
        comm_period_one: Whether the strategy exchanges after every minibatch; another tau is refused.
        lock: The least lock it is right with.
        least_auto_period: The smallest tau that ``comm_period: auto`` takes, however cheap exchanging is.
        most_exchange_share: Of a worker's time, that exchanges may take where ``auto`` could make them rarer.
        keeps_start: Whether ``worker_chunk`` needs the worker's parameters as they were after its last exchange.
        pushes_add_up: Whether sum(center) - sum(center at start) - sum(applied pushes) is 0 up to rounding, per chunk
            in float64. What is missing was lost to overlaps.
        has_moving_rate: Whether alpha means something.
        compensates: Whether a worker computes its gradient first, reads the center, and steps from there by what
            ``compensate`` makes of the gradient.
        solves_at_center: Whether workers push gradients, and the server decides by the gradients where workers go, and
            is given what the solver has of constants; else each worker makes its own updates.
        history_at_center: Whether the solver's history follows the strategy's own ``server_vectors``.
        repeats_data: Whether a worker measures over the same minibatches again and again, for a search. The search
            steps back from points whose loss or gradient is not finite: a worker pushes such a loss as it is, instead
            of ending the run.
        result: Server vector that holds where workers go after a round; None: the center does.
        server_vectors: Vectors of n_params floats that the center keeps besides itself.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    round: ClassVar[Literal["none", "pushes", "all"]] = "none"
    pulls: ClassVar[Literal["before", "after", "after_round", "never"]] = "before"
    comm_period_one: ClassVar[bool] = False
    lock: ClassVar[LockMode] = "none"
    least_auto_period: ClassVar[int] = 1
    most_exchange_share: ClassVar[float] = 0.1
    keeps_start: ClassVar[bool] = False
    pushes_add_up: ClassVar[bool] = False
    has_moving_rate: ClassVar[bool] = False
    compensates: ClassVar[bool] = False
    solves_at_center: ClassVar[bool] = False
    history_at_center: ClassVar[bool] = False
    repeats_data: ClassVar[bool] = False
    result: ClassVar[int | None] = None

    @property
    def agrees_on_period(self) -> bool:
        """Whether all workers take the longest tau of ``auto``: in rounds, a worker with a shorter tau would wait."""
        return self.round == "all" and not self.repeats_data

    @property
    def even_pace(self) -> bool:
        """Whether the server grants slower workers fewer minibatches at a time, to make all push equally often."""
        return False

    @property
    def momentum_from_center(self) -> float:
        """Share of a worker's momentum that an exchange replaces by the center's, in [0, 1]; see ``Stabiliser``."""
        return 0.0

    @property
    def measured_rates(self) -> bool:
        """Whether measured curvature bounds the rates; see ``MeasuredRates``."""
        return False

    @property
    def exchanges_behind_look_ahead(self) -> bool:
        """Whether a worker of Nesterov's solver exchanges the point before the look-ahead of its parameters."""
        return False

    def weight_of_center(self, n_workers: int) -> float:
        """Return w, the center's weight in workers: p workers move it by 1/(p + w) of a step per minibatch."""
        return 1.0

    @property
    def root_level(self) -> RootLevel | None:
        """Settings of the tree of centers; None where all workers exchange with the server's center."""
        return None

    @property
    def server_vectors(self) -> int:
        """Vectors of n_params floats that the center keeps besides itself."""
        return 0

    @property
    def saved_vectors(self) -> tuple[int, ...]:
        """Positions of the strategy's server vectors that a snapshot holds, with their counts, for a resumed run.

        Vectors that a round of all workers fills and empties are left out: the workers of an open round repeat its
        steps.
        """
        return ()

    @property
    def loss_budget(self) -> bool:
        """Whether a worker's period ends with a sum of losses, instead of a number of steps."""
        return False

    def worker_chunk(
        self, local: Vector, center: Vector, new_local: Vector, push: Vector, start: Vector, context: ExchangeContext
    ) -> None:
        """Compute a worker's side of one chunk.

        Args:
            local: The worker's parameters, shape (chunk,), read only.
            center: The center's chunk as pulled, if ``pulls`` is ``before``. In shared memory it is the center
                itself, which others write meanwhile: read it once.
            new_local: Receives the worker's new parameters, if ``pulls`` is ``before`` or ``never``.
            push: Receives what ``server_chunk`` gets.
            start: The worker's chunk after the last exchange or pull, if ``keeps_start``; read only.
            context: Numbers of this exchange.
        """
        raise NotImplementedError

    def server_chunk(
        self, center: Vector, extras: tuple[Vector, ...], push: Vector, context: ExchangeContext, n_held: int
    ) -> int:
        """Apply one pushed chunk, in place.

        Args:
            center: The center's chunk.
            extras: This chunk of the server's own vectors.
            push: Result of ``worker_chunk``.
            context: Numbers of this exchange.
            n_held: Pushes of this chunk that the server's vectors hold and the center does not.

        Returns:
            The same count after this push; 0 where pushes are applied at once.
        """
        raise NotImplementedError

    def count_unfinished(self, extras: tuple[Vector, ...], n_held: int) -> int:
        """Return the count of a chunk after a push that a killed process applied in part, wholly or not at all.

        Args:
            extras: This chunk of the server's own vectors; may be written.
            n_held: The count before that push.
        """
        raise NotImplementedError

    def center_share(self, context: ExchangeContext) -> float:
        """Return how far the center moves, in elastic differences; a push's rounding rest is multiplied by this."""
        return 1.0

    def compensate(self, gradient: Vector, local: Vector, center: Vector, n_passes: int) -> Vector:
        """Return the gradient to step by from ``center``, if ``compensates``; fresh, all of shape (n_params,).

        Args:
            gradient: Sum over ``n_passes`` passes, taken at ``local``; 0 for statistics; read only.
            local: Parameters of the measurement; read only.
            center: Start of the step; read only.
            n_passes: iter_size.
        """
        raise NotImplementedError

    def apply_rest(self, center: Vector, extras: tuple[Vector, ...], n_held: int, n_workers: int) -> None:
        """Apply the ``n_held`` pushes, at least one, that a chunk has gathered at the end of the run, in place.

        For round ``pushes``; the strategy's vectors are empty afterwards.
        """
        raise NotImplementedError

    def close_round(self, center: Vector, extras: tuple[Vector, ...], n_held: int) -> None:
        """Apply the ``n_held`` pushes, at least one, that a round has gathered in a chunk, in place (round ``all``)."""
        raise NotImplementedError

    def closer(self, solver: CenterSolver | None) -> RoundCloser:
        """Return the closer of a run's rounds (round ``all``); the default calls ``close_round`` chunk by chunk.

        Args:
            solver: The run's, if the server is to make its updates.
        """
        return ChunkwiseCloser(self.close_round)

    def progress_per_step(self, n_workers: int) -> float:
        """Return how far the mean of center and workers moves per tick of the clock, in steps of plain SGD."""
        raise NotImplementedError

    def rate_factor(self, n_workers: int) -> float:
        """Return the factor of ``rate_scale: auto`` on the solver's rate: the inverse of the progress, at most 4.

        4: a larger factor is unstable with momentum 0.9. ``sync``, the large batch itself, lost 19 points of
        cifar10_quick after 1,500 minibatches with eight workers and a factor of 8.
        """
        return min(4.0, 1.0 / self.progress_per_step(n_workers))

    def default_moving_rate(self, n_workers: int) -> float:
        """Return the default alpha."""
        return 0.0

    def for_workers(self, n_workers: int) -> Strategy:
        """Return the strategy of a run: with one worker, the center is a copy of the worker."""
        return find_strategy(SINGLE_WORKER) if n_workers == 1 else self


def strategy_names() -> tuple[str, ...]:
    """Return the names a user may choose, aliases included, sorted."""
    return tuple(sorted(name for name in _by_name() if name != SINGLE_WORKER))


def find_strategy(name: str, *, other_choices: tuple[str, ...] = ()) -> Strategy:
    """Return the strategy of a name or an alias.

    Args:
        name: The name.
        other_choices: Words that the option takes beside the names of strategies; the message lists them.

    Raises:
        ConfigError: Unknown name; the message lists the known ones and the nearest.
    """
    strategies = _by_name()
    if name in strategies:
        return strategies[name]
    names = (*other_choices, *strategy_names())
    nearest = difflib.get_close_matches(name, names, n=1)
    hint = f'; did you mean "{nearest[0]}"?' if nearest else ""
    msg = f'strategy "{name}" is unknown; known: {", ".join(names)}{hint}'
    raise ConfigError(msg)


def configure(name: str, options: Mapping[str, Option]) -> Strategy:
    """Return the strategy of a name with some of its options set.

    Raises:
        ConfigError: Unknown name or option, or a value that the option does not take; says what is allowed.
    """
    strategy = find_strategy(name)
    defaults = {field.name: getattr(strategy, field.name) for field in dataclasses.fields(strategy)}
    values: dict[str, Option] = {}
    for key, value in options.items():
        if key not in defaults:
            allowed = ", ".join(defaults) or "none"
            msg = f'option "{key}" of strategy {strategy.name} is unknown; allowed: {allowed}'
            raise ConfigError(msg)
        kind = type(defaults[key])
        fits = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
        if not fits and not (kind is float and isinstance(value, int) and not isinstance(value, bool)):
            msg = f"{key}={value!r} of strategy {strategy.name}: expected {kind.__name__}"
            raise ConfigError(msg)
        values[key] = kind(value)
    return dataclasses.replace(strategy, **values)


def check_moving_rate(strategy: Strategy, moving_rate: float | None, n_workers: int) -> list[str]:
    """Return warnings about the user's alpha, if there is one.

    Raises:
        ConfigError: alpha outside (0, 1].
    """
    if moving_rate is None:
        return []
    if not 0.0 < moving_rate <= 1.0:
        msg = f"moving_rate={moving_rate:g}: must be in (0, 1]; above 0.5 the exchange overshoots"
        raise ConfigError(msg)
    if moving_rate <= 0.5 or not strategy.has_moving_rate or n_workers == 1:
        return []
    return [
        f"moving_rate={moving_rate:g} is above 0.5: the exchange overshoots"
        f" (the distance of worker and center is multiplied by {1 - 2 * moving_rate:g} each time)"
    ]


def rate_beside_others(moving_rate: float, others_open: int) -> float:
    """Return alpha of an exchange by socket that begins while others are open.

    Open exchanges have read the center and not moved the center yet. One exchange leaves ``1 - alpha`` of the distance,
    n exchanges at once leave ``1 - n alpha`` and overshoot. With n open exchanges at the begin, about n more begin
    before the end, so this exchange shares EASGD's beta with 2 n others.

    Example:
        >>> [rate_beside_others(0.3, n) for n in (0, 1, 4)]
        [0.3, 0.3, 0.1]
    """
    return moving_rate if others_open <= 0 else min(moving_rate, BETA / (1 + 2 * others_open))


@cache
def _by_name() -> dict[str, Strategy]:
    strategies: dict[str, Strategy] = {}
    package = import_module("deepspark_ops.exchange.strategies")
    for module_info in pkgutil.iter_modules(package.__path__):
        strategy: Strategy | None = getattr(import_module(f"{package.__name__}.{module_info.name}"), "STRATEGY", None)
        if strategy is None:  # a module of shared rules
            continue
        for name in (strategy.name, *strategy.aliases):
            if name in strategies:
                msg = f'strategy name "{name}" is taken twice: {strategies[name]!r} and {strategy!r}'
                raise AssertionError(msg)
            strategies[name] = strategy
    return strategies
