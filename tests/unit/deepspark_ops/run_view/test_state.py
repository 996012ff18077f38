import pytest

from deepspark_ops.run_view.progress import RunProgress
from deepspark_ops.run_view.stage_status import NO_MESSAGE, StageStatus, ended_text
from deepspark_ops.run_view.state import AirflowRun, TaskState, state_of
from tests.unit.deepspark_ops.run_view.run_events import RUN, stage, started


def progress_of(events):
    progress = RunProgress()
    for event in events:
        progress.take(event)
    return progress


def airflow(state="running", **tasks):
    states = {name: TaskState(word, 900.0 if word else None, None, 1) for name, word in tasks.items()}
    return AirflowRun(state, states)


def note(name, status="running", **fields):
    return {name: StageStatus(name, status, 900.0, 901.0, **fields)}


FAILED = stage("failed", 400, 1050.0, reason="loss became NaN")
FINISHED = stage("finished", 1000, 1100.0, images_per_s=5000.0)
STOPPED = stage("stopped", 400, 1050.0, signal="SIGTERM")
INGESTING = note("ingest", text="ingest train: shard 3/20 written", done=3, total=20)


def test_tasks_of_other_names_are_known_by_their_operator_or_by_their_notes() -> None:
    words = {"data": "success", "fit": "running", "score": None, "mail": None}
    stages = {"data": "ingest", "fit": "train", "score": "evaluate"}
    tasks = {name: TaskState(word, 900.0, None, 1, stages.get(name, "")) for name, word in words.items()}
    run = AirflowRun("running", tasks).of_run({})
    assert list(run.tasks) == ["ingest", "train", "evaluate", "mail"]
    state = state_of(progress_of(RUN), {}, run, exists=True)
    assert (state.name, state.text) == ("running", "2 of 2 workers train")
    waits = AirflowRun("running", tasks | {"fit": TaskState("queued", stage="train")}).of_run({})
    text = "waits for task fit, which is in the queue"
    assert state_of(RunProgress(), {}, waits, exists=True).text == text
    failed = AirflowRun("failed", tasks | {"fit": TaskState("failed", 900.0, 950.0, 1, "train")}).of_run({})
    error = state_of(progress_of([*RUN, FAILED]), {}, failed, exists=True).error
    assert error is not None
    assert (error.stage, error.task, error.text) == ("train", "fit", "loss became NaN")
    of_subclass = AirflowRun("running", {"mine": TaskState("running", 900.0)}).of_run(note("train", task="mine"))
    assert state_of(progress_of(RUN), {}, of_subclass, exists=True).text == "2 of 2 workers train"


def test_of_two_tasks_of_a_stage_each_has_its_state_although_one_has_the_stages_name() -> None:
    tasks = {"evaluate": TaskState("success", 900.0, 950.0, 1, "evaluate"),
             "evaluate_wrong": TaskState("failed", 900.0, 950.0, 1, "evaluate")}  # fmt: skip
    notes = note("evaluate", "failed", message="run=x: no", task="evaluate_wrong")
    run = AirflowRun("failed", tasks).of_run(notes)
    assert {task.task: task.state for task in run.tasks.values()} == {"evaluate": "success", "evaluate_wrong": "failed"}
    state = state_of(RunProgress(), notes, run, exists=True)
    assert state.text == "task evaluate_wrong failed"
    assert state.error is not None
    assert (state.error.task, state.error.text) == ("evaluate_wrong", "run=x: no")


def test_a_dag_run_that_airflow_has_not_begun_says_why_it_waits() -> None:
    waiting = state_of(RunProgress(), {}, airflow("queued", check=None), exists=False)
    text = "waits for Airflow: the DAG is paused, or has its max_active_runs going on"
    assert (waiting.name, waiting.text) == ("waiting", text)


@pytest.mark.parametrize("stage", ["train", "evaluate"])
def test_a_run_whose_tasks_wrote_into_the_folder_of_another_says_so(stage: str) -> None:
    state = state_of(RunProgress(), {}, airflow("success", **{stage: "success"}), exists=False)
    assert state.name == "finished"
    assert state.text.endswith("ended; this run has no folder: run= of its tasks names the folder of another run")


@pytest.mark.parametrize("word", ["failed", "skipped"])
def test_a_run_that_a_person_stops_before_the_training_has_no_error_of_a_task(word: str) -> None:
    marked = TaskState(word, 900.0, 900.0)  # Airflow's times of the mark, and no try
    checked = TaskState("success", 800.0, 850.0, 1)
    for tasks in ({"check": marked, "train": marked, "export": marked}, {"check": checked, "train": marked}):
        state = state_of(RunProgress(), {}, AirflowRun("failed", tasks), exists=True)
        text = "stopped before the training began: the run was marked as failed"
        assert (state.name, state.text, state.error, state.is_over) == ("stopped", text, None, True)
    refused = {"check": TaskState("failed", 800.0, 850.0, 1), "train": marked}
    state = state_of(RunProgress(), note("check", "failed", message="no"), AirflowRun("failed", refused), exists=True)
    assert (state.name, state.text) == ("failed", "task check failed")
    trained = {"train": TaskState("failed", 900.0, 950.0, 1), "export": marked}
    state = state_of(progress_of([*RUN, STOPPED]), {}, AirflowRun("failed", trained), exists=True)
    assert (state.text, state.error) == ("stopped by SIGTERM", None)


@pytest.mark.parametrize(
    ("message", "is_reason"),
    [("", False), (ended_text("train"), False), ("the task took longer than its execution_timeout, 0:10:00", True)],
)
def test_a_stopped_training_has_an_error_if_its_task_gives_a_reason(message: str, is_reason: bool) -> None:
    run = airflow("failed", train="failed", evaluate="failed")
    state = state_of(progress_of([*RUN, STOPPED]), note("train", "failed", message=message), run, exists=True)
    words = ("failed", "task train failed") if is_reason else ("stopped", "stopped by SIGTERM")
    assert (state.name, state.text) == words
    error = state.error
    assert error is not None
    assert (error.stage, error.text) == (("train", message) if is_reason else ("evaluate", NO_MESSAGE))


def test_a_run_of_several_in_a_dag_run_has_its_own_tasks_alone() -> None:
    stages = {"fit_a": "train", "score_a": "evaluate", "fit_b": "train", "score_b": "evaluate", "mail": ""}
    tasks = {name: TaskState("success", 900.0, None, 1, stage) for name, stage in stages.items()}
    tasks["fit_b"] = TaskState("running", 900.0, None, 1, "train")
    first = AirflowRun("running", tasks, first_task="fit_a")
    assert first.of_run({}).tasks.keys() == {"train"}  # nothing says which evaluation is of the run
    of_run = first.of_run(note("evaluate", "finished", task="score_a"))
    assert {stage: task.task for stage, task in of_run.tasks.items()} == {"train": "fit_a", "evaluate": "score_a"}
    assert state_of(progress_of([*RUN, FINISHED]), {}, of_run, exists=True).name == "finished"


def test_an_ingestion_with_a_run_of_its_own_ends_before_the_training_and_without_its_failure() -> None:
    tasks = {"ingest": TaskState("success", 900.0, 950.0, 1, "ingest"), "train": TaskState("queued", stage="train")}
    ingested, elsewhere = note("ingest", "finished", task="ingest"), note("train", "running", task="train")
    waits = AirflowRun("running", tasks, first_task="ingest").of_run(ingested, {})
    assert state_of(progress_of([]), ingested, waits, exists=True).text == "waits for task train, which is in the queue"
    for state in ("running", "failed"):
        tasks["train"] = TaskState(state, 960.0, None, 1, "train")
        run = AirflowRun(state, tasks, first_task="ingest").of_run(ingested, elsewhere)
        assert run.tasks.keys() == {"ingest"}
        assert state_of(progress_of([]), ingested, run, exists=True).name == "finished"


@pytest.mark.parametrize(
    ("events", "notes", "run", "name", "text"),
    [
        ((), {}, airflow("success", ingest="success"), "finished", "this run trains nothing; its tasks have ended"),
        ((), {}, airflow(check="queued"), "waiting", "waits for task check, which is in the queue"),
        ((), {}, airflow(check="running"), "waiting", "waits for task check, which runs"),
        ((), INGESTING, airflow(check="success", ingest="running"), "waiting",
         "waits for task ingest: ingest train: shard 3/20 written"),
        ((), note("ingest", "waiting", message="task x writes it"),
         airflow(check="success", ingest="deferred"), "waiting", "waits for task ingest: task x writes it"),
        ((), {}, airflow(check="success", ingest="success", train=None), "waiting",
         "waits for task train, which has not begun"),
        ((), {}, airflow(train="running"), "starting", "Spark and its workers are starting"),
        (RUN[:4], {}, airflow(train="running"), "starting", "workers are building the net"),
        (RUN, {}, airflow(train="running"), "running", "2 of 2 workers train"),
        (RUN[:15], {}, airflow(train="running"), "running", "1 of 2 workers train"),
        ((started(0, 1000.0, n_workers=4, fewest_workers=1), *RUN[1:15]), {}, airflow(train="running"), "running",
         "1 worker trains, 1 to 4 as there are slots"),
        ((*RUN, FINISHED), {}, airflow(train="success", evaluate="queued"), "finished", "task evaluate comes next"),
        ((*RUN, FINISHED), note("evaluate", text="scored 300/359 samples"),
         airflow(train="success", evaluate="running"), "finished", "task evaluate runs: scored 300/359 samples"),
        ((*RUN, FINISHED), {}, airflow("success", train="success", evaluate="success"), "finished",
         "training has ended"),
        ((*RUN, FAILED), {}, airflow("failed", train="failed"), "failed", "task train failed"),
        ((*RUN, FAILED), {}, airflow(train="up_for_retry"), "waiting", "try 1 failed; Airflow tries again soon"),
        ((*RUN, STOPPED), {}, airflow("failed", train="failed"), "stopped", "stopped by SIGTERM"),
        ((*RUN, STOPPED), {}, airflow(train="up_for_retry"), "waiting", "try 1 failed; Airflow tries again soon"),
        ((), note("check", "failed", message="no"), airflow("failed", check="failed", train="upstream_failed"),
         "failed", "task check failed"),
        ((), {}, airflow("success", check="skipped", train="skipped"), "skipped", "the training was skipped"),
        ((), {}, airflow("success", train="skipped", simulate="skipped"), "skipped", "the training was skipped"),
        ((), note("check", "skipped", message="other data"), airflow("success", check="skipped", train="skipped"),
         "skipped", "other data"),
        ((), {}, airflow(train="skipped", simulate=None), "waiting", "waits for task simulate"),
        ((), {}, airflow(train="skipped", simulate="running"), "running", "virtual workers train"),
        ((), {}, airflow("failed", train="skipped", simulate="failed"), "failed", "task simulate failed"),
        ((), {}, airflow("success", train="skipped", simulate="success"), "finished",
         "its trials were simulated; the tab Report has how they went"),
        ((*RUN, FINISHED), {}, airflow(train="success", evaluate=None, evaluate_production="running"), "finished",
         "task evaluate_production runs"),
        ((*RUN, FINISHED), {}, airflow(train="success", evaluate="success", export="success",
                                       approve="awaiting_input", promote=None),
         "finished", "task approve waits for a person's decision: page Required Actions"),
        ((), note("convert", text="wrote 2/5 files"), airflow(convert="running"), "running",
         "task convert runs: wrote 2/5 files"),
        ((), {}, airflow(convert=None), "waiting", "task convert comes next"),
        ((), note("convert", "failed", message="no"), airflow("failed", convert="failed"), "failed",
         "task convert failed"),
        ((), {}, airflow("success", clean="success"), "finished", "this run trains nothing; its tasks have ended"),
    ],
)  # fmt: skip
def test_word_and_sentence(events, notes, run, name, text) -> None:
    state = state_of(progress_of(events), notes, run, exists=True)
    assert (state.name, state.text, state.is_over) == (name, text, run.state in ("success", "failed"))


@pytest.mark.parametrize("word", ["awaiting_input", "deferred"])
def test_a_run_says_that_it_waits_for_a_person_and_which_task_asks(word) -> None:
    events, asking = progress_of((*RUN, FINISHED)), note("approve", "waiting")
    state = state_of(events, asking, airflow(train="success", approve=word), exists=True)
    assert (state.name, state.text, state.asks) == ("finished", "waits for approval", "approve")
    # It has been answered; or a person ended the run; or another task waits, for no person.
    for tasks, notes in (
        (airflow(train="success", approve="running"), asking),
        (airflow("failed", train="success", approve=word), asking),
        (airflow(train="success", sensor=word), note("sensor")),
    ):
        assert state_of(events, notes, tasks, exists=True).asks is None


def test_a_retry_is_not_told_by_the_events_of_the_try_before() -> None:
    run = AirflowRun("running", {"train": TaskState("running", 2000.0, None, 2)})  # the events are of 1000 s
    for earlier in ((*RUN, FAILED), RUN):  # an ended stage, and a killed stage
        state = state_of(progress_of(earlier), {}, run, exists=True)
        assert (state.name, state.error) == ("starting", None)


def test_the_error_is_the_tasks_own_message() -> None:
    notes = note("check", "failed", message='solver.prototxt:1:1: unknown field "max_itr"')
    run = airflow("failed", check="failed", train="upstream_failed")
    error = state_of(progress_of([]), notes, run, exists=True).error
    assert (error.stage, error.text) == ("check", 'solver.prototxt:1:1: unknown field "max_itr"')
    error = state_of(progress_of([*RUN, FAILED]), {}, airflow("failed", train="failed"), exists=True).error
    assert (error.stage, error.text) == ("train", "loss became NaN")
    killed = state_of(progress_of(RUN), note("train"), airflow("failed", train="failed"), exists=True).error
    assert killed.text == NO_MESSAGE
    assert state_of(progress_of([*RUN, STOPPED]), {}, airflow("failed", train="failed"), exists=True).error is None
    later = state_of(
        progress_of([*RUN, FINISHED]), note("evaluate", "failed", message="disk full"),
        airflow("failed", train="success", evaluate="failed"), exists=True,
    )  # fmt: skip
    text = "the training finished; task evaluate failed"
    assert (later.name, later.text, later.error.stage, later.error.text) == ("failed", text, "evaluate", "disk full")


def test_a_failure_after_the_training_fails_the_run_as_the_list_of_runs_says() -> None:
    def state(run, notes=None):
        of_run = state_of(progress_of([*RUN, FINISHED]), notes or {}, run, exists=True)
        return of_run.name, of_run.text

    failed = ("failed", "the training finished; task evaluate failed")
    assert state(None, note("evaluate", "failed", message="no")) == failed
    assert state(airflow("running", train="success", evaluate="failed", mail="running"))[0] == "finished"
    tasks = {"fit": TaskState("success", 900.0, 950.0, 1, "train"), "score": TaskState("failed", 960.0, 970.0, 1)}
    part = AirflowRun("running", tasks, first_task="fit")
    assert state(part.of_run(note("evaluate", "failed", task="score"))) == (
        failed[0],
        failed[1].replace("evaluate", "score"),
    )
    assert state(part.of_run({}))[0] == "finished"  # the failed task is of another run
    marked = airflow("failed", train="success", evaluate="skipped")
    text = "the training finished; no task failed: a person stopped the run, or the run's time limit ended the run"
    assert state(marked) == ("failed", text)


def test_a_finished_task_that_airflow_calls_failed_shows_both_states() -> None:
    refused = airflow("failed", ingest="failed", train="upstream_failed")
    error = state_of(progress_of([]), note("ingest", "finished"), refused, exists=True).error
    assert error.text.startswith(
        "the task did its work to the end, and Airflow has it as failed all the same: Airflow "
    )
    assert "did not accept its end state, and the log of its API server says why" in error.text
    second_try = AirflowRun("failed", {"ingest": TaskState("failed", 950.0, None, 2)})  # the note is of the try before
    assert state_of(progress_of([]), note("ingest", "finished"), second_try, exists=True).error.text == NO_MESSAGE


def test_what_is_counted_before_and_after_the_training() -> None:
    state = state_of(progress_of([]), INGESTING, airflow(check="success", ingest="running"), exists=True)
    assert (state.done, state.total) == (3, 20)
    assert state_of(progress_of(RUN), INGESTING, airflow(train="running"), exists=True).total is None


def test_a_run_without_airflow_is_told_by_its_own_files() -> None:
    def state(events, notes=None):
        run_state = state_of(progress_of(events), notes or {}, None, exists=True)
        return run_state.name, run_state.is_over

    assert state(RUN) == ("running", False)
    assert state([*RUN, FINISHED]) == ("finished", True)
    assert state([*RUN, FAILED]) == ("failed", True)
    assert state([*RUN, STOPPED]) == ("stopped", True)
    assert state([], note("check", "failed", message="no")) == ("failed", True)
    assert state([], note("check")) == ("waiting", False)


def test_an_unknown_run_is_said_to_be_unknown_and_over() -> None:
    state = state_of(progress_of([]), {}, None, exists=False)
    assert (state.name, state.is_over) == ("unknown", True)
