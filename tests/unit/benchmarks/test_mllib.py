"""The benchmark beside MLlib reads times and accuracies from a run's events."""

from deepspark_ops.events import Event

SCRIPT = "mllib"


def test_time_counts_until_the_first_test_that_reaches_the_accuracy(script):
    events = [Event("stage", 0, -1, {"status": "started"}, 100.0)]
    for clock, accuracy, time in ((0, 0.1, 108.0), (50, 0.9, 109.0), (100, 0.97, 110.5), (150, 0.98, 112.0)):
        events.append(Event("evaluation", clock, 0, {"accuracy": accuracy}, time))
    row = script.row_of("sync", events, 0.96)
    assert (row.accuracy, row.seconds, row.training_s, row.minibatches) == (0.97, 10.5, 2.5, 100)
    missed = script.row_of("sync", events, 0.99)
    assert (missed.accuracy, missed.seconds, missed.training_s, missed.minibatches) == (0.98, None, None, 150)
