from deepspark_ops.evaluate.tasks.classification import accuracy_figure
from deepspark_ops.operators.pages.models.chart import VERSIONS_SHOWN, accuracy_chart, column_name


def version(number, top1, *, low=None, high=None, is_production=False):
    judged = accuracy_figure(top1, (low or top1, high or top1)).model_dump()
    return {"version": f"v{number}", "judged": judged, "is_production": is_production}


def of_rmse(number, value):
    judged = {**version(number, value)["judged"], "name": "rmse", "label": "RMSE", "is_share": False, "interval": None}
    return {**version(number, value), "judged": judged}


def test_versions_that_are_judged_by_another_figure_are_left_out():
    chart = accuracy_chart([version(1, 0.5), of_rmse(2, 12.5), of_rmse(3, 7.0)])
    assert [(point["version"], point["text"]) for point in chart["points"]] == [("v2", "12.5"), ("v3", "7")]
    assert (chart["label"], chart["points"][0]["y"] < chart["points"][1]["y"]) == ("RMSE", True)
    assert column_name([version(1, 0.5)["judged"], of_rmse(2, 1.0)["judged"]]) == "judged by"


def test_higher_accuracy_is_drawn_higher_and_intervals_fill_the_height():
    chart = accuracy_chart([version(1, 0.5, low=0.4, high=0.6), version(2, 0.9, low=0.8, high=1.0, is_production=True)])
    first, second = chart["points"]
    assert (first["y_low"], second["y_high"]) == (114.0, 22.0)
    assert second["y_high"] < second["y"] < second["y_low"] < first["y_high"] < first["y"] < first["y_low"]
    assert first["x"] < second["x"] < chart["width"]
    assert [point["is_production"] for point in chart["points"]] == [False, True]


def test_versions_without_figures_and_old_ones_are_left_out():
    unscored = {"version": "v0", "judged": None, "is_production": False}
    assert accuracy_chart([unscored, version(1, 0.5)]) is None
    chart_of_many = accuracy_chart([version(number, 0.5) for number in range(1, 101)])
    assert [chart_of_many["points"][0]["version"], chart_of_many["points"][-1]["version"]] == [
        f"v{101 - VERSIONS_SHOWN}",
        "v100",
    ]
    assert len({point["y"] for point in chart_of_many["points"]}) == 1  # all alike: no division by a range of nothing
