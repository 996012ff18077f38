from deepspark_ops.events import DRIVER, Event
from deepspark_ops.run_view.curves import read_curves


def loss_event(clock, worker, value, *, rate=0.1, time=0.0):
    return Event("loss", clock, worker, {"loss": value, "learning_rate": rate, "images_per_s": 5.0}, time)


def test_points_are_sorted_by_clock_per_worker():
    curves = read_curves([loss_event(20, 1, 3.0), loss_event(10, 1, 4.0), loss_event(10, 0, 2.0)])
    assert curves.loss == {0: [(10.0, 2.0)], 1: [(10.0, 4.0), (20.0, 3.0)]}
    assert curves.n_workers == 2


def test_retry_repeats_a_clock_and_the_later_report_counts():
    curves = read_curves([loss_event(10, 0, 9.0, time=1.0), loss_event(10, 0, 5.0, time=31.0)])
    assert curves.loss == {0: [(10.0, 5.0)]}
    assert curves.seconds == 30.0


def test_values_that_are_not_finite_arrive_as_text_and_are_left_out():
    curves = read_curves([loss_event(10, 0, "nan"), loss_event(20, 0, 1.0)])
    assert curves.loss == {0: [(20.0, 1.0)]}


def test_evaluation_gives_each_output_its_curve():
    events = [
        Event("evaluation", 50, 0, {"test_net": 0, "accuracy": 0.9, "loss": 0.3, "seconds": 0.2, "prob": [0.1]}, 0.0),
        Event("evaluation", 50, 0, {"test_net": 1, "accuracy": 0.8, "seconds": 0.2}, 0.0),
    ]
    assert read_curves(events).evaluations == {
        "accuracy": [(50.0, 0.9)],
        "loss": [(50.0, 0.3)],
        "accuracy (test net 1)": [(50.0, 0.8)],
    }


def test_mean_is_over_neighbouring_reports_of_all_workers():
    events = [loss_event(clock, clock % 2, float(clock)) for clock in range(60)]
    curves = read_curves(events)
    assert curves.smoothing == 4
    assert curves.mean_loss[0] == (1.5, 1.5)  # clocks 0 to 3
    assert curves.mean_loss[-1] == (57.5, 57.5)
    assert len(curves.mean_loss) == 57


def test_driver_and_other_kinds_draw_nothing():
    curves = read_curves([Event("stage", 0, DRIVER, {"name": "train"}, 5.0)])
    assert not curves.loss
    assert not curves.evaluations
    assert not curves.mean_loss


def test_no_events_is_an_empty_set_of_curves():
    curves = read_curves([])
    assert (curves.n_workers, curves.seconds, curves.learning_rate) == (0, 0.0, [])


def test_server_events_give_the_exchange_its_curves():
    data = {"exchanges_per_s": 20.5, "bytes_per_s": 10, "staleness": 1.25, "lost_updates": 0.0, "deviation": 1e-7}
    curves = read_curves([Event("server", clock, DRIVER, data, 0.0) for clock in (20, 10)])
    assert curves.exchange["exchanges_per_s"] == [(10.0, 20.5), (20.0, 20.5)]
    assert curves.exchange["lost_updates"] == [(10.0, 0.0), (20.0, 0.0)]
    assert "deviation" not in curves.exchange


def test_where_the_time_went_is_shares_over_neighbouring_reports():
    def report(clock, worker, compute_s, data_s, exchange_s):
        seconds = {"compute_s": compute_s, "data_s": data_s, "exchange_s": exchange_s}
        return Event("loss", clock, worker, {**seconds, "loss": 1.0}, 0.0)

    curves = read_curves([report(10, 0, 3.0, 0.5, 0.5), report(20, 1, 1.0, 2.5, 0.5), report(30, 0, 4.0, 0.0, 0.0)])
    assert curves.time_shares == {  # the means of two reports, one of each worker
        "compute_s": [(15.0, 4.0 / 8.0), (25.0, 5.0 / 8.0)],
        "data_s": [(15.0, 3.0 / 8.0), (25.0, 2.5 / 8.0)],
        "exchange_s": [(15.0, 1.0 / 8.0), (25.0, 0.5 / 8.0)],
    }
    assert read_curves([report(10, 0, 0.0, 0.0, 0.0)]).time_shares == {}


def test_workers_have_curves_of_speed_and_distance():
    events = [loss_event(20, 1, 3.0), Event("loss", 10, 0, {"loss": "nan", "distance": 0.25, "images_per_s": 7}, 0.0)]
    assert read_curves(events).workers == {
        "images_per_s": {0: [(10.0, 7.0)], 1: [(20.0, 5.0)]},
        "distance": {0: [(10.0, 0.25)]},
    }


def test_warnings_of_the_driver_are_told_once():
    few = {"text": "1 of 2 workers have a slot", "warning": True}
    events = [Event("note", 1, DRIVER, data, 1.0) for data in ({"text": "a"}, few, few, {**few, "text": "last"})]
    assert read_curves(events).warnings == ("1 of 2 workers have a slot", "last")
