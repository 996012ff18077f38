"""The joining and leaving of a worker, around any kind of work. Knows no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable

from caffe_import.errors import CaffeImportError
from deepspark_ops.errors import ConfigError, DataError, TrainingFailed
from deepspark_ops.events import make_event
from deepspark_ops.exchange.transport.link import Welcome, WorkerLink
from deepspark_ops.train.worker.outcome import WorkerOutcome


def to_its_end(worker: int, link: WorkerLink, work: Callable[[Welcome], WorkerOutcome]) -> WorkerOutcome:
    """Join, work, report an outcome that ends the run to the driver, leave; the link is closed.

    An error of the user or of the run is an outcome. Every other error is raised: another try may help.

    Raises:
        ExchangeUnavailable, ProtocolError, OSError: A silent server, a disk, an unforeseen error.
    """
    try:
        welcome = link.join(worker)
        outcome = _outcome(worker, work, welcome)
        if outcome.ends_the_run:
            # The driver sees the event now, and not at the end of the last worker.
            data = {"reason": outcome.message, "ending": outcome.ending}
            link.send_event(make_event("worker_lost", clock=welcome.clock, worker=worker, **data))
        link.leave()
    finally:
        # Without leave() the server sees a crash at once; a reused process would keep the socket open.
        link.close()
    return outcome


def _outcome(worker: int, work: Callable[[Welcome], WorkerOutcome], welcome: Welcome) -> WorkerOutcome:
    try:
        return work(welcome)
    except (ConfigError, DataError, CaffeImportError) as error:
        return WorkerOutcome(worker, "refused", str(error))
    except TrainingFailed as error:
        return WorkerOutcome(worker, "failed", str(error))
