"""``deepspark models`` from the outside: output, changes, exit codes."""

import json

import pytest

from deepspark_ops.command import models
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.registry.production import production_weights
from tests.reference.bundles import make_bundle
from tests.reference.command_line import invoke
from tests.reference.evaluations import answers_with, evaluation, write_evaluation

LABELS = [0, 1] * 50


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "_user", lambda: "anna")
    return tmp_path


def models_command(*arguments, code=0):
    result = invoke("models", *arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def make_run(folder, name, n_wrong):
    evaluated = evaluation(answers_with(LABELS, range(n_wrong)), LABELS, weights=name)
    run = folder / "runs" / name
    make_bundle(run / "bundle", name.encode(), run=name, evaluated=evaluated, weights_digest=f"sha256:{name}")
    (run / "config.json").write_text("{}")
    write_evaluation(run / "evaluation", evaluated)
    return f"runs/{name}"


@pytest.fixture
def two(folder):
    """Versions v1 (9 of 100 wrong) and v2 (none)."""
    models_command("promote", "digits", make_run(folder, "first", 9), "--reason", "to begin with")
    models_command("promote", "digits", make_run(folder, "second", 0), "--reason", "more data")
    return folder


def test_promotion_goes_through_the_gate(folder):
    first = models_command("promote", "digits", make_run(folder, "first", 9), "--reason", "to begin with")
    assert first.stdout == "promoted: top1 91.0 %; no model was in production\nmodel=digits version=v1\n"
    refused = models_command("promote", "digits", make_run(folder, "second", 8), "--reason", "newer", code=2)
    assert refused.stdout == ""
    assert refused.stderr == (
        "error: kept production: +1.0 points on 100 samples, p = 0.50; at least 95 % confidence is needed. To promote "
        "it all the same, give --force\n"
    )
    forced = models_command("promote", "digits", "runs/second", "--reason", "newer", "--force", "--json")
    promoted = json.loads(forced.stdout)
    assert (promoted["version"], promoted["who"], promoted["decision"]["is_forced"]) == ("v2", "anna", True)
    history = json.loads(models_command("show", "digits", "--json").stdout)["history"]
    assert [(entry["action"], entry["comment"]) for entry in history] == [
        ("promoted", "to begin with"),
        ("kept", "newer"),
        ("promoted", "newer"),
    ]
    assert history[-1]["reason"] == "promoted by hand without a comparison: newer"


def test_the_bundle_in_production_is_not_promoted_again(two):
    for options in ([], ["--force"]):
        again = models_command("promote", "digits", "runs/second", "--reason", "again", *options, code=2)
        bundle = two / "runs/second/bundle"
        assert again.stderr == f'error: model "digits": bundle={bundle} is in production already, as v2\n'
    assert len(json.loads(models_command("show", "digits", "--json").stdout)["history"]) == 2


def test_list_shows_each_model(two):
    lines = models_command("list").stdout.splitlines()
    assert lines[0].split() == "model production accuracy 95 % interval since by versions".split()
    assert lines[1].startswith("digits  v2          100.0 %   96.3 to 100.0")
    assert lines[1].split()[-2:] == ["anna", "2"]
    listing = json.loads(models_command("list", "--json").stdout)
    assert listing["format_version"] == 1
    assert [(model["name"], model["production"]["version"]) for model in listing["models"]] == [("digits", "v2")]


def test_list_of_nothing(folder):
    assert models_command("list", "--models", "elsewhere").stdout == "no models in elsewhere\n"
    assert json.loads(models_command("list", "--json").stdout)["models"] == []


def test_show_tells_versions_history_and_lineage(two):
    text = models_command("show", "digits").stdout
    assert "digits: v2 is in production since " in text
    assert "promoted: +9.0 points on 100 samples, p = 0.002" in text
    assert "v1       91.0 %" in text
    assert "more data" in text
    assert "v2: data the net's own sources -> net x, solver x, DeepSpark unknown -> run second, iteration 1 -> " in text


def test_rollback_moves_production_and_the_next_retraining_starts_there(two):
    output = models_command("rollback", "digits", "--reason", "misreads sevens").stdout
    assert output == "model=digits version=v1 was=v2\n"
    # What the check stage of a retraining reads.
    home = Places(two, two).home
    assert production_weights(home / "models", "digits").read_bytes() == b"first"
    rolled_back = json.loads(models_command("rollback", "digits", "--to", "2", "--reason", "no", "--json").stdout)
    assert (rolled_back["version"], rolled_back["reason"]) == ("v2", "rolled back from v1 to v2: no")


def test_rollback_needs_a_reason_and_a_version_that_is_there(two):
    assert "--reason" in models_command("rollback", "digits", code=2).stderr
    assert models_command("rollback", "digits", "--to", "7", "--reason", "x", code=2).stderr == (
        "error: version='7': no such version; known: v1, v2\n"
    )


def test_verify_names_the_first_damage(two):
    assert models_command("verify", "digits").stdout.startswith("model=digits: 2 versions, 6 files, ")
    verified = json.loads(models_command("verify", "digits", "--json").stdout)
    assert [(version["version"], version["n_files"]) for version in verified["versions"]] == [("v1", 3), ("v2", 3)]
    (two / "models/digits/versions/v1/weights.caffemodel").write_bytes(b"bits.")
    damaged = models_command("verify", "digits", code=2)
    assert "versions/v1: weights.caffemodel has changed since manifest.json was written" in damaged.stderr


@pytest.mark.parametrize("command", [["show", "x"], ["verify", "x"], ["rollback", "x", "--reason", "r"]])
def test_unknown_model_is_one_message(folder, command):
    assert (
        "no such model" in (error := models_command(*command, code=2).stderr)
        or 'no model "x" in models; there are: none' in error
    )


def test_another_folder_of_models(two):
    (two / "models").rename(two / "elsewhere")
    assert (
        json.loads(models_command("show", "digits", "--models", "elsewhere", "--json").stdout)["production"]["version"]
        == "v2"
    )


def test_bad_bound_names_the_option(folder):
    error = models_command("promote", "digits", "x", "--reason", "r", "--confidence", "95", code=2).stderr
    assert error == "error: confidence=95.0: Input should be less than or equal to 0.999\n"


def test_mlflow_is_told_where_production_moved(folder, monkeypatch):
    tracked_models = []
    monkeypatch.setattr(models, "tell_model", lambda model, _: tracked_models.append(model))
    models_command("promote", "digits", make_run(folder, "first", 9), "--reason", "to begin with")
    assert tracked_models == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    models_command("promote", "digits", make_run(folder, "second", 0), "--reason", "more data")
    models_command("rollback", "digits", "--reason", "drift")
    models_command("promote", "digits", make_run(folder, "third", 9), "--reason", "is not better", code=2)
    assert tracked_models == [folder / "models" / "digits"] * 2
