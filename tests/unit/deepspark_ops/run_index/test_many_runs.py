from __future__ import annotations

import math
import random

import numpy as np
import pytest

from deepspark_ops.run_index.many_runs import (
    correlation_ratio,
    correlations,
    main_figure,
    plain_columns,
    run_columns,
    spearman,
)


def slow_rank(values, value):
    """Rank of a value: one more than the smaller ones, and half of the other equal ones."""
    smaller = sum(other < value for other in values)
    return smaller + (sum(other == value for other in values) + 1) / 2


def slow_pearson(xs, ys):
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    top = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return top / math.sqrt(sum((x - mean_x) ** 2 for x in xs) * sum((y - mean_y) ** 2 for y in ys))


def test_spearman_is_pearson_of_ranks_by_a_slow_loop():
    rng = random.Random(5)
    for _ in range(20):
        xs = [rng.choice([1.0, 2.0, 4.0, 8.0]) for _ in range(30)]
        ys = [x * rng.random() for x in xs]
        expected = slow_pearson([slow_rank(xs, x) for x in xs], [slow_rank(ys, y) for y in ys])
        assert spearman(np.array(xs), np.array(ys)) == pytest.approx(expected, abs=1e-9)


def test_the_ratio_is_the_root_of_the_variance_between_groups_by_a_slow_loop():
    rng = random.Random(6)
    groups = [rng.choice("abc") for _ in range(40)]
    values = [rng.random() + (group == "a") for group in groups]
    mean = sum(values) / len(values)
    between = 0.0
    for group in "abc":
        inside = [value for value, other in zip(values, groups, strict=True) if other == group]
        between += len(inside) * (sum(inside) / len(inside) - mean) ** 2
    expected = math.sqrt(between / sum((value - mean) ** 2 for value in values))
    assert correlation_ratio(groups, np.array(values)) == pytest.approx(expected, abs=1e-9)


def figures_row(accuracy, **fields):
    numbers = {"accuracy": accuracy, "loss": 1.0, "images_per_s": None, "seconds": 2.0, "clock": 100, "figure": None}
    return {**numbers, **fields}


def test_settings_that_differ_are_columns_of_numbers_or_of_texts():
    rows = [figures_row(0.9), figures_row(0.8), figures_row(None), figures_row(0.7, loss=math.inf)]
    settings = [
        {"solver: base_lr": "0.1", "strategy": "easgd", "same": "1", "net digest": "a"},
        {"solver: base_lr": "0.01", "strategy": "sync", "same": "1", "net digest": "b"},
        {"solver: base_lr": "0.001", "strategy": "sync", "same": "1", "tau": "auto"},
        {"solver: base_lr": "", "strategy": "easgd", "same": "1", "tau": "4"},
    ]
    columns = run_columns(rows, settings)
    by_name = {column.name: (column.role, column.kind, list(column.values)) for column in columns}
    assert by_name["solver: base_lr"] == ("setting", "number", [0.1, 0.01, 0.001, None])
    assert by_name["strategy"] == ("setting", "text", ["easgd", "sync", "sync", "easgd"])
    assert by_name["tau"] == ("setting", "text", [None, None, "auto", "4"])
    assert {"same", "net digest", "images/s"} & set(by_name) == set()
    assert by_name["accuracy"] == ("figure", "number", [0.9, 0.8, None, 0.7])
    assert main_figure(columns) == "accuracy"
    (loss,) = [column for column in plain_columns(columns) if column["name"] == "loss"]
    assert loss["values"] == [1.0, 1.0, 1.0, None]


def test_the_strongest_setting_is_first_and_too_few_runs_have_no_correlation():
    rows = [figures_row(value) for value in (0.5, 0.6, 0.7, 0.8)]
    settings = [
        {"lr": "4", "strategy": strategy, "rare": rare}
        for strategy, rare in (("a", "1"), ("b", "2"), ("a", ""), ("b", ""))
    ]
    for at, run_settings in enumerate(settings):
        run_settings["lr"] = str(-at)
    found = correlations(run_columns(rows, settings), "accuracy")
    assert [(one.setting, one.measure, one.n_runs) for one in found] == [("lr", "rank", 4), ("strategy", "groups", 4)]
    assert found[0].value == -1.0


def test_a_text_of_its_own_in_most_runs_explains_nothing():
    rows = [figures_row(value) for value in (0.5, 0.6, 0.7, 0.8)]
    settings = [
        {"solver": solver, "strategy": strategy, "overrides": f"base_lr: {strategy}"}
        for solver, strategy in (("a", "x"), ("b", "x"), ("c", "y"), ("c", "y"))
    ]
    columns = run_columns(rows, settings)
    assert "overrides" not in {column.name for column in columns}  # each field of the text is a setting of the solver
    assert [correlation.setting for correlation in correlations(columns, "accuracy")] == ["strategy"]


def test_other_tasks_are_judged_by_the_figure_that_most_runs_have():
    rmse = {"label": "RMSE", "value": 0.3}
    columns = run_columns(
        [figures_row(None, figure=rmse), figures_row(None, figure=rmse), figures_row(0.9)], [{}, {}, {}]
    )
    assert main_figure(columns) == "RMSE"
    assert main_figure([]) is None
