"""The event files are read back by TensorFlow's own reader, which checks both CRCs and parses the message."""

from __future__ import annotations

import pytest

from deepspark_ops.events import Event
from deepspark_ops.train.driver.tensorboard_file import TensorBoardFile, scalars_of


def loss_event(clock: int, worker: int, loss: float) -> Event:
    return Event("loss", clock, worker, {"loss": loss, "learning_rate": 0.01, "note": "text is not drawn"}, 1000.5)


def test_loss_is_tagged_with_its_worker() -> None:
    assert scalars_of(loss_event(7, 3, 0.5)) == {"train/loss/worker_3": 0.5, "train/learning_rate/worker_3": 0.01}


def test_evaluation_is_tagged_with_its_net() -> None:
    event = Event("evaluation", 500, 0, {"test_net": 1, "accuracy": 0.75, "seconds": 2.0, "per_class": [1, 2]}, 0.0)
    assert scalars_of(event) == {"test_1/accuracy": 0.75}


def test_the_exchange_as_a_whole_has_its_own_tags() -> None:
    event = Event("server", 500, -1, {"exchanges_per_s": 20.5, "lost_updates": 0.0, "watched_chunk": 3}, 0.0)
    assert scalars_of(event) == {"exchange/exchanges_per_s": 20.5, "exchange/lost_updates": 0.0}


def test_the_slowest_exchanges_are_drawn() -> None:
    event = Event("exchange", 500, 2, {"exchanges": 40, "p99_ms": 1.25, "transport": "shm"}, 0.0)
    assert scalars_of(event) == {"train/exchange_p99_ms/worker_2": 1.25}


def test_other_kinds_draw_nothing(tmp_path) -> None:
    with TensorBoardFile(tmp_path) as board:
        board.add(Event("note", 1, 0, {"text": "hello"}, 0.0))
    (path,) = tmp_path.iterdir()
    with TensorBoardFile(tmp_path / "other") as board:
        pass
    (empty,) = (tmp_path / "other").iterdir()
    assert path.stat().st_size == empty.stat().st_size


@pytest.mark.tf
def test_tensorflow_reads_what_was_written(tmp_path) -> None:
    import tensorflow as tf

    with TensorBoardFile(tmp_path) as board:
        board.add(loss_event(0, 0, 2.25))
        board.add(loss_event(1_000_000, 1, 0.125))
        board.add(Event("evaluation", 500, 0, {"test_net": 0, "accuracy": 0.5}, 1001.0))
    (path,) = tmp_path.iterdir()
    events = [tf.compat.v1.Event.FromString(raw.numpy()) for raw in tf.data.TFRecordDataset(str(path))]
    assert events[0].file_version == "brain.Event:2"
    drawn = [(e.wall_time, e.step, {v.tag: v.simple_value for v in e.summary.value}) for e in events[1:]]
    assert drawn[0] == (1000.5, 0, {"train/loss/worker_0": 2.25, "train/learning_rate/worker_0": pytest.approx(0.01)})
    assert drawn[1][1:] == (
        1_000_000,
        {"train/loss/worker_1": 0.125, "train/learning_rate/worker_1": pytest.approx(0.01)},
    )
    assert drawn[2] == (1001.0, 500, {"test_0/accuracy": 0.5})
