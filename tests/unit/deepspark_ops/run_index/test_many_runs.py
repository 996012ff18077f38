from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from caffe_import.proto import caffe_pb2
from deepspark_ops.config.flat_fields import flat_fields
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.run_index.many_runs import (
    _OPERATION,
    _REPORTING,
    correlation_ratio,
    correlations,
    main_figure,
    plain_columns,
    run_columns,
    spearman,
)


def slow_rank(values, value):
    """Rank of a value: one more than the number of smaller values, and half of the other equal values."""
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


def test_an_option_of_operation_and_reports_is_no_setting():
    assert set(_OPERATION) <= set(flat_fields(TrainConfig))
    assert set(_REPORTING) <= {field.name for field in caffe_pb2.SolverParameter.DESCRIPTOR.fields}
    settings = [
        {"allowed_root": root, "confined": root, "solver: display": root, "comm_period": root} for root in ("1", "2")
    ]
    columns = run_columns([figures_row(0.9), figures_row(0.8)], settings)
    assert [column.name for column in columns if column.role == "setting"] == ["comm_period"]


def p_values(settings, accuracies):
    columns = run_columns([figures_row(accuracy) for accuracy in accuracies], settings)
    return {correlation.setting: correlation.p_value for correlation in correlations(columns, "accuracy")}


def test_the_p_value_of_few_runs_is_the_share_of_all_their_orders():
    rates, groups = (1.0, 2.0, 3.0, 4.0, 5.0), ("a", "a", "b", "b", "b")
    accuracies = (0.5, 0.7, 0.6, 0.8, 0.9)
    orders = list(itertools.permutations(accuracies))
    of_rank = [abs(spearman(np.array(rates), np.array(order))) for order in orders]
    of_groups = [correlation_ratio(groups, np.array(order)) for order in orders]
    expected = [np.mean(np.array(values) >= values[0] - 1e-9) for values in (of_rank, of_groups)]
    settings = [{"lr": str(rate), "strategy": group} for rate, group in zip(rates, groups, strict=True)]
    values = p_values(settings, accuracies)
    assert [values["lr"], values["strategy"]] == pytest.approx(expected, abs=0.05)  # 3 deviations of 999 shuffles


def test_the_p_value_of_many_runs_is_that_of_the_usual_tests():
    rng = np.random.default_rng(8)
    rates, groups = rng.random(80), rng.integers(0, 3, 80)
    accuracies = 0.5 + 0.1 * rng.random(80) + 0.02 * rates + 0.012 * groups
    expected = [
        stats.spearmanr(rates, accuracies).pvalue,
        stats.f_oneway(*(accuracies[groups == group] for group in range(3))).pvalue,
    ]
    settings = [{"lr": str(rate), "strategy": f"s{group}"} for rate, group in zip(rates, groups, strict=True)]
    values = p_values(settings, [float(value) for value in accuracies])
    assert 0.01 < min(expected) < max(expected) < 0.5
    assert [values["lr"], values["strategy"]] == pytest.approx(expected, abs=0.05)


def test_many_runs_are_before_few_runs_of_a_stronger_coefficient():
    accuracies = [0.5 + 0.01 * run for run in range(12)]
    rates = (1, 0, *range(2, 12))
    settings = [{"lr": str(rate), "tau": str(run) if run < 3 else ""} for run, rate in enumerate(rates)]
    columns = run_columns([figures_row(accuracy) for accuracy in accuracies], settings)
    ordered = correlations(columns, "accuracy")
    assert [(correlation.setting, correlation.n_runs) for correlation in ordered] == [("lr", 12), ("tau", 3)]
    assert [correlation.p_value < 0.05 for correlation in ordered] == [True, False]


def test_the_strongest_setting_is_first_and_too_few_runs_have_no_correlation():
    rows = [figures_row(value) for value in (0.5, 0.6, 0.7, 0.8)]
    settings = [
        {"lr": "4", "strategy": strategy, "rare": rare}
        for strategy, rare in (("a", "1"), ("b", "2"), ("a", ""), ("b", ""))
    ]
    for at, run_settings in enumerate(settings):
        run_settings["lr"] = str(-at)
    setting_correlations = correlations(run_columns(rows, settings), "accuracy")
    assert [(correlation.setting, correlation.measure, correlation.n_runs) for correlation in setting_correlations] == [
        ("lr", "rank", 4),
        ("strategy", "groups", 4),
    ]
    assert setting_correlations[0].value == -1.0


def test_a_text_of_its_own_in_most_runs_explains_nothing():
    rows = [figures_row(value) for value in (0.5, 0.6, 0.7, 0.8)]
    settings = [
        {"net": net, "strategy": strategy, "overrides": f"base_lr: {strategy}"}
        for net, strategy in (("a", "x"), ("b", "x"), ("c", "y"), ("c", "y"))
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
