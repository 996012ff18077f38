"""Schedules in words."""

from __future__ import annotations

from typing import Any

import pytest

from deepspark_ops.run_index.schedule import BY_HAND, schedule_text, timezone_of

DATASET = {"asset": {"name": "deepspark_dataset", "uri": "x", "group": "asset"}}
OTHER = {"alias": {"name": "other"}}


@pytest.mark.parametrize(
    ("description", "timezone", "assets", "text"),
    [
        ("Never, external triggers only", "", None, BY_HAND),
        ("", "", None, BY_HAND),
        ("At 03:00", "", None, "03:00 every day"),
        ("At 03:00", "UTC", None, "03:00 UTC every day"),
        ("At 03:00, on day 1 of the month", "UTC", None, "at 03:00, on day 1 of the month (UTC)"),
        ("Every 5 minutes", "UTC", None, "every 5 minutes (UTC)"),
        ("Triggered by assets", "", {"all": [DATASET]}, "when deepspark_dataset is updated"),
        ("Triggered by assets", "", {"all": [DATASET, OTHER]}, "when deepspark_dataset and other are updated"),
        ("Triggered by assets", "", {"any": [DATASET, OTHER]}, "when deepspark_dataset or other is updated"),
        ("Triggered by assets", "", {"asset_ref": None}, "when an asset is updated"),
        (
            "Triggered by assets or At 03:00",
            "UTC",
            {"all": [DATASET]},
            "03:00 UTC every day, or when deepspark_dataset is updated",
        ),
    ],
)
def test_schedule_in_words(description: str, timezone: str, assets: dict[str, Any] | None, text: str) -> None:
    assert schedule_text(description, timezone=timezone, assets=assets) == text


def test_time_zone_is_found_wherever_airflow_puts_it() -> None:
    cron = {"__type": "cron", "__var": {"expression": "0 3 * * *", "timezone": "Europe/Oslo"}}
    assert timezone_of(cron) == "Europe/Oslo"
    assert timezone_of({"__type": "assets", "__var": {"asset_condition": {"objects": [1]}, "timetable": cron}}) == (
        "Europe/Oslo"
    )
    assert timezone_of({"__type": "none", "__var": {}}) == timezone_of(None) == ""
