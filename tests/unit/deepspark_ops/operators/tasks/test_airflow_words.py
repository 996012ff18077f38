import logging
from pathlib import Path

import pytest

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.operators.provider.airflow_names import AirflowFailException
from deepspark_ops.operators.tasks.airflow_words import airflow_words
from deepspark_ops.operators.tasks.stage_run import noted_stage
from deepspark_ops.processes.job_log import LineHandler
from deepspark_ops.run_view.stage_status import read_statuses
from deepspark_ops.train.setup.run_checks import check_paths

pytestmark = pytest.mark.airflow


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ('dataset=/d: no such folder; run "deepspark ingest" first, or give its --output',
         "dataset=/d: no such folder; run DeepSparkIngestOperator first, or give its output"),
        ('no config.json in it; give the folder that "deepspark train" wrote (option --run-dir)',
         "no config.json in it; give the folder that DeepSparkTrainOperator wrote (option run)"),
        ('for raw data run "deepspark ingest /d --output OUTPUT" and give OUTPUT',
         "for raw data run DeepSparkIngestOperator with output and give OUTPUT"),
        ("remedy: Run `deepspark evaluate RUN`, or lower `--n-workers 4..16`",
         "remedy: Run DeepSparkEvaluateOperator, or lower `n_workers=4..16`"),
        ('"deepspark check SOLVER --memory" says what fits', "DeepSparkCheckOperator with memory says what fits"),
    ],
)  # fmt: skip
def test_a_command_is_named_by_its_operator_and_an_option_by_the_argument(message: str, words: str) -> None:
    assert airflow_words(message) == words


@pytest.mark.parametrize(
    "message",
    [
        'in a shell: "deepspark models rollback digits --to VERSION"',
        'run "deepspark export RUN --watch-me"',
        "/data/a--dataset/x: no such file",
        "spark-submit --master yarn",
    ],
)
def test_commands_without_an_operator_and_other_text_stay(message: str) -> None:
    assert airflow_words(message) == message


def test_a_tasks_message_of_a_missing_dataset_names_the_operator_on_the_page_too(tmp_path: Path) -> None:
    config = TrainConfig(solver=tmp_path / "s", run_dir=tmp_path / "r", dataset=tmp_path / "none")

    def start(on_line: LineHandler) -> None:
        on_line(logging.WARNING, "lower --n-workers")
        check_paths(config)

    words = "no such folder; run DeepSparkIngestOperator first, or give its output"
    with (
        pytest.raises(AirflowFailException, match=words),
        noted_stage(tmp_path / "r", "train", logging.getLogger()) as on_line,
    ):
        start(on_line)
    status = read_statuses(tmp_path / "r")["train"]
    assert status.message.endswith(words)
    assert [text for _, text in status.warnings] == ["lower n_workers"]
