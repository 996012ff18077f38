from deepspark_ops.operators.pages.models.chart import VERSIONS_SHOWN, accuracy_chart


def version(number, top1, *, low=None, high=None, is_production=False):
    figures = {"top1": top1, "top1_interval": (low or top1, high or top1)}
    return {"version": f"v{number}", "figures": figures, "is_production": is_production}


def test_higher_accuracy_is_drawn_higher_and_intervals_fill_the_height():
    chart = accuracy_chart([version(1, 0.5, low=0.4, high=0.6), version(2, 0.9, low=0.8, high=1.0, is_production=True)])
    first, second = chart["points"]
    assert (first["y_low"], second["y_high"]) == (114.0, 22.0)
    assert second["y_high"] < second["y"] < second["y_low"] < first["y_high"] < first["y"] < first["y_low"]
    assert first["x"] < second["x"] < chart["width"]
    assert [point["is_production"] for point in chart["points"]] == [False, True]


def test_versions_without_figures_and_old_ones_are_left_out():
    unscored = {"version": "v0", "figures": None, "is_production": False}
    assert accuracy_chart([unscored, version(1, 0.5)]) is None
    many = accuracy_chart([version(number, 0.5) for number in range(1, 101)])
    assert [many["points"][0]["version"], many["points"][-1]["version"]] == [f"v{101 - VERSIONS_SHOWN}", "v100"]
    assert len({point["y"] for point in many["points"]}) == 1  # all alike: no division by a range of nothing
