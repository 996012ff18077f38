"""Names in other modules of Airflow 3.1 than of 3.2 and later: the operators import the names from here."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator
from airflow.timetables.trigger import CronTriggerTimetable as DescribedCronTimetable

try:
    from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        AirflowTaskTimeout,
        ParamValidationError,
        TaskDeferred,
    )
except ImportError:  # 3.1
    from airflow.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        AirflowTaskTimeout,
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
    from airflow.sdk import RetryDecision, RetryPolicy
except ImportError:  # before 3.3
    OwnTries: Any = None
else:

    class OwnTries(RetryPolicy):  # type: ignore[no-redef]
        """Policy of a task that failed by itself: fewer tries than after an outage."""

        def __init__(self, retries: int, delay: timedelta) -> None:
            """Allow ``retries`` tries after the first, with a delay; 0 ends the task at once."""
            self.retries = retries
            self.delay = delay

        def evaluate(self, exception: BaseException, try_number: int, *_: Any, **__: Any) -> RetryDecision:
            """Return whether the end of a stage has a next try; Airflow's own settings decide about other failures."""
            if not isinstance(exception, SystemExit):
                return RetryDecision.default()
            return RetryDecision.retry(self.delay) if try_number <= self.retries else RetryDecision.fail()


GROWING_DELAY: bool | float = True if isinstance(BaseOperator.retry_exponential_backoff, bool) else 2.0
"""``retry_exponential_backoff`` that doubles the delay with each try: a switch in Airflow 3.1, a factor later."""

__all__ = [
    "GROWING_DELAY",
    "WAITS",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "AssetOrTimeSchedule",
    "CronTriggerTimetable",
    "DescribedCronTimetable",
    "OwnTries",
    "ParamValidationError",
    "TaskDeferred",
]
