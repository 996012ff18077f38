"""Results and tables of the benchmark of strategies, without runs of the stages."""

from dataclasses import replace

from deepspark_ops.events import make_event

SCRIPT = "strategies"


def test_one_worker_is_one_run_for_all_strategies(script):
    cells = list(script.cells_of("lenet", ["easgd", "sync", "downpour"], [2, 1], 100))
    assert [(cell.strategy, cell.workers) for cell in cells] == [
        ("single_worker", 1),
        ("easgd", 2),
        ("sync", 2),
        ("downpour", 2),
    ]
    assert "eamsgd" not in script.canonical()  # an alias


def test_interrupted_benchmark_goes_on(script, tmp_path):
    path = tmp_path / "results.json"
    ended = script.Cell("lenet", "easgd", 2, 100, accuracy=0.9)
    failed = script.Cell("lenet", "sync", 2, 100, failure="no room")
    for cell in (ended, failed):
        script.Results(path).put(cell)
    results = script.Results(path)
    assert results.has(ended, retry_failed=False)
    assert results.has(failed, retry_failed=False)
    assert not results.has(failed, retry_failed=True)
    assert not results.has(replace(ended, minibatches=200), retry_failed=False)
    assert not results.has(replace(ended, workers=4), retry_failed=False)


def test_measures_come_from_the_events(script):
    cell = script.Cell("lenet", "easgd", 2, 500)
    events = [
        make_event("exchange", worker=0, exchanges=10, bytes=4000, comm_period=4),
        make_event("exchange", worker=1, exchanges=5, bytes=2000, comm_period=6),
        make_event("loss", worker=0, loss=1.0, staleness=1.0),
        make_event("loss", worker=1, loss=1.0, staleness=2.0),
        make_event("stage", status="finished", images_per_s=3200.0, exchanges=20),
    ]
    measures = script.measured(cell, 0.97, events)
    assert measures.sent_bytes == 20 * 400  # the last five exchanges were told by nobody
    assert measures.train_s == 500 * 64 / 3200
    assert (measures.exchanges, measures.comm_period, measures.staleness, measures.accuracy) == (20, 5.0, 1.5, 0.97)


def test_page_names_what_loses_too_much(script, tmp_path):
    results = script.Results(tmp_path / "results.json")
    results.put(script.Cell("lenet", "single_worker", 1, 100, accuracy=0.98, train_s=10.0))
    results.put(script.Cell("lenet", "easgd", 2, 100, accuracy=0.965, train_s=5.0))
    assert "- 2 workers: 1 of 1 strategies within 2 points of one worker.\n" in script.page(results)
    results.put(script.Cell("lenet", "downpour", 2, 100, accuracy=0.955, train_s=5.0))
    results.put(script.Cell("lenet", "sync", 2, 100, failure="worker 0: loss is nan at minibatch 3"))
    page = script.page(results)
    verdict = "- 2 workers: 1 of 3 strategies within 2 points of one worker; further below: `downpour`"
    assert f"{verdict}; without a result: `sync`.\n" in page
    assert "| `easgd` | 2 | 96.5 % | -1.5 | 5 s |" in page
    assert "| `sync` | 2 | diverged |" in page
    for seed, accuracy in ((2, 0.975), (3, 0.97)):
        results.put(script.Cell("lenet", "easgd", 2, 100, accuracy=accuracy, train_s=8.0, seed=seed))
    assert "| `easgd` | 2 | 97.0 ± 0.5 % | -1.0 | 7 s |" in script.page(results)


def test_shorter_run_drops_the_rate_in_proportion(script):
    assert script.overrides(script.NETS["cifar10_quick"], 2000, 2).endswith(" random_seed: 2 stepvalue: 1600")
    assert "stepvalue" not in script.overrides(script.NETS["lenet"], 2000, 1)
