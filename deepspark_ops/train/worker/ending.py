"""How a worker joins the run and leaves it again, whatever it does in between. Knows no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable

from caffe_import.errors import CaffeImportError
from deepspark_ops.errors import ConfigError, DataError, TrainingFailed
from deepspark_ops.events import make_event
from deepspark_ops.exchange.transport.link import Welcome, WorkerLink
from deepspark_ops.train.worker.outcome import WorkerOutcome


def to_its_end(worker: int, link: WorkerLink, work: Callable[[Welcome], WorkerOutcome]) -> WorkerOutcome:
    """Join, work, tell the driver what no other worker can make up for, leave; the link is closed.

    What the user or the run itself did wrong is an outcome. Everything else is raised: another try may help.

    Raises:
        ExchangeUnavailable, ProtocolError, OSError: The server stayed silent, a disk, anything unforeseen.
    """
    try:
        welcome = link.join(worker)
        outcome = _outcome(worker, work, welcome)
        if outcome.ends_the_run:
            # The driver sees it now, not when the last of the other workers is done.
            data = {"reason": outcome.message, "ending": outcome.ending}
            link.send_event(make_event("worker_lost", clock=welcome.clock, worker=worker, **data))
        link.leave()
    finally:
        # Without leave() the server sees a crash at once; a process that is used again would keep the socket open.
        link.close()
    return outcome


def _outcome(worker: int, work: Callable[[Welcome], WorkerOutcome], welcome: Welcome) -> WorkerOutcome:
    try:
        return work(welcome)
    except (ConfigError, DataError, CaffeImportError) as error:
        return WorkerOutcome(worker, "refused", str(error))
    except TrainingFailed as error:
        return WorkerOutcome(worker, "failed", str(error))
