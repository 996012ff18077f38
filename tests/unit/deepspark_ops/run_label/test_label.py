from __future__ import annotations

import json

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.run_index.index_file import read_index, write_index
from deepspark_ops.run_index.outcome import outcome_of
from deepspark_ops.run_label.label import RunLabel, label_run, read_label, write_label
from deepspark_ops.run_view.stage_status import StageStatus


def label_config(**fields):
    return parse_config(RunLabelConfig, fields)


def test_name_and_tags_are_kept_in_a_line_and_each_tag_once(tmp_path):
    label = label_run(tmp_path / "run", label_config(name="the  paper\n", tags=" base, v2 ,base,, a b "))
    assert (label.name, label.tags) == ("the paper", ("base", "v2", "a b"))
    assert read_label(tmp_path / "run") == label
    assert json.loads((tmp_path / "run" / "label.json").read_text())["format_version"] == 1


def test_a_change_by_a_person_after_the_trigger_stays_when_the_task_is_tried_again(tmp_path):
    write_label(tmp_path, RunLabel(name="renamed", archived=True))
    assert label_run(tmp_path, label_config(name="of the form", tags="new")) == RunLabel(
        name="renamed", tags=("new",), archived=True
    )


def test_a_run_without_name_and_tags_has_no_file(tmp_path):
    assert label_run(tmp_path / "run", label_config()) == RunLabel()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format_version": 2, "name": "a"}', '{"name": "a", "x": 1}'])
def test_a_damaged_label_is_an_empty_label(tmp_path, text):
    (tmp_path / "label.json").write_text(text)
    assert read_label(tmp_path) == RunLabel()


def test_a_name_that_is_too_long_is_refused_with_its_bound():
    with pytest.raises(ConfigError, match=r"name.*120"):
        label_config(name="x" * 121)


def test_a_changed_label_makes_the_index_stale(tmp_path):
    write_index(tmp_path)
    assert read_index(tmp_path) is not None
    write_label(tmp_path, RunLabel(name="a", tags=("b",), archived=True))
    assert read_index(tmp_path) is None
    summary = write_index(tmp_path)
    assert (summary.name, summary.tags, summary.archived) == ("a", ("b",), True)
    assert read_index(tmp_path) == summary


@pytest.mark.parametrize(
    ("decision", "promote", "outcome"),
    [
        ({"promotes": True, "approval": None}, "finished", "promoted"),
        ({"promotes": True, "approval": None}, "running", None),
        ({"promotes": True, "approval": None}, None, None),
        ({"promotes": False, "approval": {"answer": "refused"}}, "skipped", "rejected"),
        ({"promotes": False, "approval": {"answer": "nobody"}}, None, "nobody approved"),
        ({"promotes": False}, None, "kept production"),
        ({}, "finished", None),
    ],
)
def test_outcome_is_the_persons_answer_else_the_gates_and_a_promotion_once_it_is_done(decision, promote, outcome):
    statuses = {"promote": StageStatus("promote", promote, 0.0, 1.0)} if promote else {}
    assert outcome_of(decision, statuses) == outcome


@pytest.mark.parametrize(
    ("stage", "outcome"), [("check", "nothing trained"), ("ingest", "nothing trained"), ("promote", None)]
)
def test_a_training_that_its_first_tasks_skip_has_an_outcome(stage: str, outcome: str | None) -> None:
    assert outcome_of({}, {stage: StageStatus(stage, "skipped", 1.0, 2.0)}) == outcome
