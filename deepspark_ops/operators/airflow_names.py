"""Names that Airflow 3.1 has in other modules than 3.2 and later: the operators import them from here."""

from __future__ import annotations

from typing import Any

from airflow.timetables.trigger import CronTriggerTimetable as DescribedCronTimetable

try:
    from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        ParamValidationError,
        TaskDeferred,
    )
except ImportError:  # 3.1
    from airflow.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        ParamValidationError,
        TaskDeferred,
    )
    from airflow.timetables.assets import AssetOrTimeSchedule
    from airflow.timetables.trigger import CronTriggerTimetable

try:
    from airflow.sdk.exceptions import TaskAwaitingInput
except ImportError:  # before 3.3, which defers a task that asks a person
    WAITS: Any = (TaskDeferred,)
else:
    WAITS = (TaskDeferred, TaskAwaitingInput)
"""What a task raises that goes on later, on another worker perhaps."""

try:
    from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
except ImportError:  # before 3.3
    NoRetry: Any = None
else:

    class NoRetry(RetryPolicy):  # type: ignore[no-redef]
        """Policy of a task that is not tried again, whatever it failed with."""

        def evaluate(self, *_: Any, **__: Any) -> RetryDecision:
            """Return the decision that fails the task at once."""
            return RetryDecision.fail()


__all__ = [
    "WAITS",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "AssetOrTimeSchedule",
    "CronTriggerTimetable",
    "DescribedCronTimetable",
    "NoRetry",
    "ParamValidationError",
]
