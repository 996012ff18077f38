"""Events of a small run with two workers, for the tests of what reads runs."""

from __future__ import annotations

from deepspark_ops.events import DRIVER, Event


def loss(worker, clock, at, **numbers):
    data = {"loss": 0.5, "learning_rate": 0.01, "images_per_s": 100.0, "compute_s": 3.0, "data_s": 0.5}
    return Event("loss", clock, worker, {**data, "exchange_s": 0.5, **numbers}, at)


def stage(status, clock, at, **data):
    return Event("stage", clock, DRIVER, {"stage": "train", "status": status, **data}, at)


def started(clock, at, **data):
    fields = {"net": "LeNet", "n_params": 431080, "n_workers": 2, "strategy": "easgd", "max_iter": 1000}
    return stage("started", clock, at, **(fields | data))


RUN = (
    started(0, 1000.0),
    Event("note", 0, DRIVER, {"text": "weights from fillers"}, 1000.0),
    Event("worker_joined", 0, 0, {"transport": "shm"}, 1003.0),
    Event("worker_joined", 0, 1, {"transport": "shm"}, 1003.1),
    Event("evaluation", 0, 0, {"test_net": 0, "accuracy": 0.1, "loss": 2.3, "seconds": 0.1}, 1004.0),
    loss(0, 0, 1004.0, loss=2.4),
    Event("epoch", 45, DRIVER, {"dataset": "train", "epoch": 0, "samples": 1438}, 1006.0),
    loss(1, 100, 1014.0, loss=1.0, staleness=0.5),
    Event("exchange", 100, 1, {"exchanges": 10, "seconds": 0.2, "bytes": 100, "comm_period": 4}, 1014.0),
    loss(0, 200, 1024.0, loss=0.6, distance=0.25, images_per_s=150.0),
    Event("server", 200, DRIVER, {"exchanges_per_s": 20.0, "bytes_per_s": 1e6, "lost_updates": 0.0}, 1024.0),
    Event("epoch", 225, DRIVER, {"dataset": "train", "epoch": 4, "samples": 1438}, 1025.0),
    Event("snapshot", 250, DRIVER, {"weights": "/r/snapshots/lenet_iter_250.caffemodel", "seconds": 0.1}, 1028.0),
    Event("worker_lost", 260, 1, {"reason": "silent for 30 s"}, 1030.0),
    loss(0, 300, 1034.0, loss="nan"),
    Event("worker_joined", 310, 1, {"transport": "shm"}, 1036.0),
    Event(
        "evaluation", 400, 0, {"test_net": 0, "accuracy": 0.975, "loss": 0.08, "n_samples": 90, "seconds": 0.1}, 1043.0
    ),
    loss(1, 400, 1044.0, loss=0.25),
)


def lines(events=RUN):
    return "".join(event.to_json() + "\n" for event in events).encode()
