from __future__ import annotations

from deepspark_ops.devices.worker_events import devices_text
from deepspark_ops.events import Event, make_event


def device_event(worker: int, text: str) -> Event:
    return make_event("worker_devices", worker=worker, text=text)


def test_workers_are_counted_by_their_last_devices() -> None:
    events = [
        device_event(0, "GPU 0"),
        device_event(1, "GPU 1"),
        make_event("loss", worker=0),
        device_event(2, "GPU 1"),
        device_event(0, "GPU 3"),
    ]
    assert devices_text(events) == "2 workers on GPU 1; GPU 3"


def test_a_large_cluster_is_cut_short_and_an_old_run_says_nothing() -> None:
    assert devices_text(device_event(worker, f"GPU {worker}") for worker in range(20)).endswith(
        "GPU 7; 12 more workers"
    )
    assert devices_text([make_event("loss", worker=0)]) == ""
