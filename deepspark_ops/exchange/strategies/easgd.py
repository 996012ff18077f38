"""Asynchronous elastic averaging (EASGD); with the Nesterov solver it is the paper's EAMSGD."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import BETA, ExchangeContext, RootLevel, Strategy
from deepspark_ops.exchange.strategies.shared_rules import Elastic

PAPER = "paper"
VARIANTS = ("default", PAPER)
FLAT, TREE = "flat", "tree"


@dataclass(frozen=True)
class Easgd(Elastic):
    """Worker and center move towards each other by the same elastic difference.

    Zhang, Choromanska and LeCun, "Deep learning with Elastic Averaging SGD" (2015), Algorithm 1, steps a) and b),
    in the sequential form: one worker exchanges with the center at a time, chunk by chunk::

        e       = alpha * (local - center)
        local'  = local  - e
        center' = center + e

    Both lines use the same ``e``, so the sum of workers and center stays constant, up to float32 rounding. With more
    than four workers the center weighs more than a worker and moves by ``e / center_weight``: the weighted sum stays
    constant. So workers stay near the center, and the center does not follow single workers. The solver's history
    stays with the worker. A share of its momentum (SGD, Nesterov) is replaced by the center's momentum: without the
    share, workers swing about the center (``train.worker.rates.stabiliser``), and the rate can be half as large. The
    eigenvalue of worker - center is 1 - 2 alpha per exchange: an alpha above 0.5 overshoots.

    ``variant: paper`` is the paper's unchanged algorithm: workers keep their momentum, the center weighs as much as a
    worker, alpha is 0.9/p, and the rates are the solver's. Caffe's parameters of the Nesterov solver are the point of
    the gradient, x + delta v; workers of this variant exchange x (``rates.stabiliser``). A worker exchanges and
    then takes its gradient. With ``overlap`` and tau 1 the worker takes the gradient first, as in the paper's listing.

    Attributes:
        variant: ``default`` or ``paper``.
        momentum_from_center: The share, in [0, 1].
        center_weight: What the center weighs by a worker, at least 1; 0: with up to four workers 1, with more 2, from
            sixteen on p/8.
        measured_rates: Whether measured curvature bounds the rates of three workers and more, beside convolutions.
        center: ``flat``: all workers exchange with the server's center. ``tree``: the workers of a host share a center
            in the host's memory, and hosts exchange with the server's center, the root; see ``TreeTransfer``. A worker
            takes momentum from its host's center. Weight and default alpha of a center go by the number of its present
            children: workers of the host; hosts, and workers on the server's own host.
        root_comm_period: tau of hosts, in exchanges of each of a host's workers; 0: chosen by measured times, as
            ``comm_period: auto`` chooses tau of workers.
        root_moving_rate: alpha of hosts; 0: the default by the number of the root's children.
    """

    name = "easgd"
    aliases = ("eamsgd",)

    variant: str = "default"
    momentum_from_center: float = 0.5
    center_weight: float = 0.0
    measured_rates: bool = True
    center: str = field(default=FLAT, repr=False)  # results of virtual runs have the names of the flat form's options
    root_comm_period: int = field(default=0, repr=False)
    root_moving_rate: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        """Refuse an unknown variant, a share outside [0, 1], and a center lighter than a worker.

        Raises:
            ConfigError: Names the option.
        """
        if self.variant not in VARIANTS:
            msg = f'variant="{self.variant}"; allowed: {", ".join(VARIANTS)}'
            raise ConfigError(msg)
        share = self.momentum_from_center
        if not 0.0 <= share <= 1.0:
            msg = f"momentum_from_center={share:g}: must be in [0, 1]; 0 leaves workers their own momentum"
            raise ConfigError(msg)
        if self.center_weight != 0.0 and not self.center_weight >= 1.0:
            msg = f"center_weight={self.center_weight:g}: must be at least 1; 0 goes by the number of workers"
            raise ConfigError(msg)
        self._check_tree()

    def _check_tree(self) -> None:
        if self.center not in (FLAT, TREE):
            msg = f'center="{self.center}"; allowed: {FLAT}, {TREE}'
            raise ConfigError(msg)
        if self.root_comm_period < 0:
            msg = f"root_comm_period={self.root_comm_period}: must be at least 1; 0 goes by measured times"
            raise ConfigError(msg)
        if not 0.0 <= self.root_moving_rate <= 1.0:
            msg = f"root_moving_rate={self.root_moving_rate:g}: must be in [0, 1]; 0 goes by the number of hosts"
            raise ConfigError(msg)
        if self.center == FLAT and (self.root_comm_period, self.root_moving_rate) != (0, 0.0):
            msg = "root_comm_period and root_moving_rate are for a tree of centers; set center: tree"
            raise ConfigError(msg)

    @property
    def root_level(self) -> RootLevel | None:
        """See ``Strategy``."""
        return RootLevel(self.root_comm_period, self.root_moving_rate) if self.center == TREE else None

    def for_workers(self, n_workers: int) -> Strategy:
        """See ``Strategy``; two workers keep their momentum: with a moving rate of 0.45 the share gains nothing."""
        if n_workers == 1:
            return super().for_workers(n_workers)
        if self.variant == PAPER:
            return replace(self, momentum_from_center=0.0, measured_rates=False, center_weight=1.0)
        return replace(self, momentum_from_center=0.0, measured_rates=False) if n_workers == 2 else self

    @property
    def exchanges_behind_look_ahead(self) -> bool:
        """See ``Strategy``."""
        return self.variant == PAPER

    def weight_of_center(self, n_workers: int) -> float:
        """See ``Strategy``."""
        return self.center_weight or (1.0 if n_workers <= 4 else max(2.0, n_workers / 8))

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1/(p + m): a step moves one of p workers; their weighted mean with a center of weight m trains."""
        return 1.0 / (n_workers + self.weight_of_center(n_workers))

    def rate_factor(self, n_workers: int) -> float:
        """Return p + m without a limit: large factors have a long warm-up, and measured curvature bounds the rate."""
        return 1.0 if self.variant == PAPER else 1.0 / self.progress_per_step(n_workers)

    def default_moving_rate(self, n_workers: int) -> float:
        """Return 0.3 also for many workers: a heavy center moves by less, from sixteen workers on by 2.4/p."""
        if self.variant == PAPER:
            return BETA / n_workers  # its beta / p
        return 0.3 if self.weight_of_center(n_workers) > 1.0 else super().default_moving_rate(n_workers)

    def center_share(self, context: ExchangeContext) -> float:
        """See ``Strategy``."""
        return 1.0 / self.weight_of_center(context.n_workers)


STRATEGY = Easgd()
