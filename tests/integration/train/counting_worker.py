"""A worker that reads and computes nothing, but writes down the records of whole pieces."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.state.leases import Lease
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.train.data.batches import LeasedBatches
from deepspark_ops.train.data.data_layers import FedLayer
from deepspark_ops.train.data.sample_cache import SampleCache


def fed_layer(split: Path, batch: int) -> FedLayer:
    samples = SampleCache(open_dataset(split))
    image = samples.dataset.sample_shapes[0]
    return FedLayer("d", {"data": (batch, *image), "label": (batch,)}, (0, 1), samples, None, "train", "TRAIN")


def count(
    address: ExchangeAddress,
    worker: int,
    split: Path,
    log: Path,
    begin: Barrier | None,
    *,
    batch: int,
    n_epochs: int,
    dies_after: int | None = None,
    pause: tuple[int, Event] | None = None,
) -> None:
    """Read, once all have passed ``begin``, until a piece of epoch ``n_epochs`` comes.

    Lines of ``log``: epoch, then the labels of a whole piece that the server knows as read.

    With ``dies_after`` the process kills itself in the middle of a piece, after this number of steps and after the
    server knows of a piece as read, while its thread holds further pieces. With ``pause`` the process waits, after this
    number of steps, until the event is set.
    """
    link = connect(address)
    link.join(worker)
    if begin is not None:
        begin.wait(120)
    rows: dict[int, list[int]] = {}
    ask, reports = link.lease, threading.Lock()

    def lease(dataset: str, *, read: Sequence[Lease] = ()) -> Lease | None:
        with reports:
            answer = ask(dataset, read=read)
            for piece in read:
                out.write(" ".join(map(str, (piece.epoch, *rows.pop(piece.id)))) + "\n")
        return answer

    link.lease = lease  # type: ignore[method-assign]
    batches = LeasedBatches(link, [fed_layer(split, batch)], (), iter_size=1, seed=1, worker=worker, first_step=0)
    with log.open("a", buffering=1) as out, batches:
        for step in range(1_000_000):
            feeds, (uses,) = batches.draw(1)
            labels = feeds["label"].ravel().astype(int).tolist()
            if uses[0].lease.epoch >= n_epochs:
                break
            for use in uses:
                consumed_labels = rows.setdefault(use.lease.id, [])
                n_new = use.consumed - use.lease.skip - len(consumed_labels)
                consumed_labels += labels[:n_new]
                del labels[:n_new]
            batches.book(uses)
            if dies_after is not None and step >= dies_after and rows:
                with reports:
                    if log.stat().st_size:
                        os.kill(os.getpid(), signal.SIGKILL)
            if pause is not None and step == pause[0]:
                assert pause[1].wait(120), "no end of the pause after 120 s"
    link.leave()
    link.close()
