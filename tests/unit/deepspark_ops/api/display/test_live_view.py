from rich.console import Console

from deepspark_ops.api.display.live_view import LiveView
from deepspark_ops.events import Event


def loss_event(worker, clock, at, **numbers):
    data = {"loss": 0.5, "learning_rate": 0.003, "images_per_s": 300.0, "compute_s": 7.5, "data_s": 0.5}
    data |= {"exchange_s": 2.0, "staleness": 1.25, "distance": 0.0421, **numbers}
    return Event("loss", clock, worker, data, at)


RUN = [
    Event("stage", 0, -1, {"stage": "train", "status": "started", "net": "LeNet", "n_params": 431080,
                           "n_workers": 3, "strategy": "easgd", "max_iter": 5000}, 100.0),
    Event("note", 0, -1, {"text": "weights from fillers"}, 100.0),
    Event("worker_joined", 0, 0, {"transport": "shm"}, 103.0),
    Event("worker_joined", 0, 1, {"transport": "shm"}, 103.1),
    Event("worker_joined", 0, 2, {"transport": "shm"}, 103.2),
    loss_event(0, 0, 104.0, loss=2.3),
    loss_event(0, 1000, 124.0),
    Event("exchange", 1000, 0, {"exchanges": 10, "seconds": 2.0, "bytes": 100, "comm_period": 4}, 124.0),
    loss_event(1, 1001, 124.0, loss="nan", images_per_s=500.0),
    Event("server", 1001, -1, {"exchanges_per_s": 61.5, "bytes_per_s": 212_000_000, "staleness": 0.98, "overlaps": 7,
                               "lost_updates": 0.0021}, 124.0),
    Event("evaluation", 1000, 0, {"test_net": 0, "accuracy": 0.9721, "loss": 0.0833, "seconds": 1.2}, 124.5),
]  # fmt: skip


def drawn(events, width=130, height=40):
    view = LiveView(max_iter=100)
    for event in events:
        view.take(event)
    console = Console(width=width, height=height)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def worker_columns(text, worker):
    (line,) = [line for line in text.splitlines() if line.strip().startswith(f"{worker} ")]
    return line.split()


def test_a_row_per_worker_with_its_numbers():
    text = drawn(RUN)
    assert worker_columns(text, 0) == "0 1,000 0.5000 0.003 300 7.50 s 75% 0.50 s 5% 2.00 s 20% 4 1.2 0.0421".split()
    assert worker_columns(text, 1)[:5] == ["1", "1,001", "nan", "0.003", "500"]
    assert worker_columns(text, 2) == ["2", "joined"]
    assert "LeNet: easgd, 3 workers" in text


def test_until_the_first_loss_it_says_what_is_waited_for():
    hours = iter([10.0, 17.2])
    view = LiveView(max_iter=100, seconds=lambda: next(hours))
    console = Console(width=130)
    with console.capture() as capture:
        console.print(view)
    assert "0 of 100 minibatches, Spark and its workers are starting, 7 s" in capture.get()
    assert "workers are building the net" in drawn(RUN[:5])
    assert "workers are building" not in drawn(RUN[:6])


def test_narrow_terminal_loses_seconds_and_no_column():
    text = drawn(RUN, width=80)
    assert worker_columns(text, 0) == "0 1,000 0.5000 0.003 300 75% 5% 20% 4 1.2 0.0421".split()
    assert "…" not in text
    assert "…" not in drawn(RUN, width=125)


def test_more_workers_than_the_screen_has_lines():
    losses = [loss_event(worker, 1000, 110.0) for worker in range(64)]
    text = drawn([*losses, RUN[-1]], height=24)
    assert len(text.splitlines()) < 24
    assert "and 53 more workers" in text
    assert "19,200" in text  # all of them, shown or not
    assert "test at clock" in text


def test_all_workers_together():
    (line,) = [line for line in drawn(RUN).splitlines() if line.strip().startswith("all ")]
    assert line.split() == ["all", "nan", "800"]
    (line,) = [line for line in drawn(RUN[:8]).splitlines() if line.strip().startswith("all ")]
    assert line.split() == ["all", "0.5000", "300"]


def test_lost_worker_no_longer_counts():
    text = drawn([*RUN, Event("worker_lost", 1200, 1, {"reason": "silent"}, 130.0)])
    assert worker_columns(text, 1)[:2] == ["1", "lost"]
    (line,) = [line for line in text.splitlines() if line.strip().startswith("all ")]
    assert line.split()[-1] == "300"


def test_line_of_the_server():
    assert "center: 61.5 exchanges/s, 212.0 MB/s, staleness 0.98, overlaps 7, lost updates 0.0021" in drawn(RUN)
    without = Event("server", 1001, -1, {"exchanges_per_s": 1.0, "bytes_per_s": 5e5}, 1.0)
    assert "center: 1.0 exchanges/s, 0.5 MB/s\n" in drawn([without])


def test_last_test_and_the_time_left():
    text = drawn(RUN)
    assert "test at clock=1,000: accuracy=0.9721 loss=0.0833" in text
    # 1,001 minibatches in 20 s, 3,999 to go: 79.9 s
    assert "1,001 of 5,000 minibatches, about 1:20 left" in text


def test_done_run_has_no_time_left():
    assert "5,000 of 5,000 minibatches\n" in drawn([*RUN, loss_event(0, 5000, 200.0)])


def test_before_anything_happened():
    assert drawn([]).strip() == "0 of 100 minibatches, Spark and its workers are starting, 0 s"
