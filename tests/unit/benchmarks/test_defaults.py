"""Runs, results and tables of the benchmark of defaults, without runs of the virtual cluster."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.defaults import runs as kept_runs
from benchmarks.defaults.__main__ import DOCS, put_between_marks
from benchmarks.defaults.picture import picture
from benchmarks.defaults.runs import PAIRS, RECORDED, Runs, dataset_of, read_recorded, write_recorded
from benchmarks.defaults.studies import NETS, SEEDS, STUDIES, capped, cells_of, config_of
from benchmarks.defaults.tables import measured, table, table_of_choice, table_of_defaults
from deepspark_ops.simulation.results import CurvePoint, write_result
from tests.unit.deepspark_ops.simulation.small_results import result


@pytest.fixture
def runs(tmp_path: Path):
    (tmp_path / "out").mkdir()
    return Runs(tmp_path / "out", tmp_path, None)


def put(runs, cells, accuracy: float | None, seconds: float = 10.0) -> None:
    """Write results whose accuracy is reached halfway."""
    for cell in cells:
        end = 0.0 if accuracy is None else accuracy
        curve = tuple(CurvePoint(clock=c, virtual_s=s, value=end) for c, s in ((1, seconds / 2), (2, seconds)))
        cell_result = result("easgd", cell.workers, cell.seed, [0.1, 0.2])
        failure = "loss is nan" if accuracy is None else None
        cell_result = cell_result.model_copy(update={"accuracy": accuracy, "curve": curve, "failure": failure})
        write_result(runs.file(cell), cell_result)


def test_runs_of_another_default_are_other_runs(runs):
    cells = list(cells_of("rate", ["lenet"], [1], [8]))
    assert [(cell.workers, cell.variant) for cell in cells[:2]] == [(1, ""), (8, "at most 1")]
    files = {runs.file(cell) for cell in cells}
    assert len(files) == len(cells) == 21
    assert {config_of(cell).comm_period for cell in cells} == {"auto", 1, 3, 10}


def test_a_net_of_short_runs_is_in_its_studies_only():
    assert list(cells_of("strategies", ["cifar10_short"], [1], [8])) == []
    assert {cell.minibatches for cell in cells_of("rate", ["cifar10_short"], [1], [8])} == {1_500}


def test_a_row_says_mean_and_range_of_the_seeds(runs):
    cells = list(cells_of("moving_rate", ["lenet"], [1, 2], [4]))
    put(runs, [cell for cell in cells if cell.workers == 1], 0.9)
    own_cells = [cell for cell in cells if (cell.row, cell.variant) == ("tau 10", "0.9/p")]
    put(runs, own_cells[:1], 0.80)
    assert "| | tau 10 | 4 | 80.0 |  |  |  |" in table("moving_rate", ["lenet"], [1, 2], runs)
    put(runs, own_cells[1:], 0.82)
    assert "| | tau 10 | 4 | 81.0 ± 1.0 |  |  |  |" in table("moving_rate", ["lenet"], [1, 2], runs)
    put(runs, own_cells[1:], None)
    assert "| | tau 10 | 4 | 80.0, 1 diverged |  |  |  |" in table("moving_rate", ["lenet"], [1, 2], runs)


@pytest.mark.parametrize(
    ("losses", "text"), [((22.1, 22.5), "22.3 ± 0.2"), ((0.0521, 0.0529), "0.0525 ± 0.0004"), ((0.05,), "0.0500")]
)
def test_a_loss_is_no_percentage(runs, losses, text):
    cells = [cell for cell in cells_of("kinds", ["siamese"], [1, 2], [4]) if cell.variant == "easgd"]
    for cell, loss in zip(cells, losses, strict=False):
        cell_result = result("easgd", 4, cell.seed, [0.1]).model_copy(update={"figure": "loss", "accuracy": loss})
        write_result(runs.file(cell), cell_result)
    assert f"| | 4 | {text} |  |" in table("kinds", ["siamese"], [1, 2], runs)


def test_nets_of_other_kinds_appear_in_their_study_only():
    assert list(cells_of("strategies", ["siamese", "lstm"], [1], [8])) == []
    cells = list(cells_of("kinds", ["lenet", "lstm"], [1], [8]))
    assert [(cell.net, cell.variant) for cell in cells if cell.workers == 8] == [
        ("lenet", "easgd"), ("lenet", "sync"), ("lstm", "easgd"), ("lstm", "sync"),
    ]  # fmt: skip


def test_constants_are_changed_for_a_cells_run_only(runs):
    def default_warmup():
        return table_of_defaults()[2]

    cells = list(cells_of("warm_up", ["lstm"], [1], [8]))
    files = [runs.file(cell) for cell in cells if cell.workers == 8]
    assert len(set(files)) == 4
    old_warmup = default_warmup()
    with capped(cells[1].options):
        assert "500 / 250 / 1,000 / 2,000 / 2,000" in default_warmup()
    assert default_warmup() == old_warmup
    # One worker; 6.5, 13 and none with 16 workers, whose factor is 18; 26 too with 32.
    assert len({runs.file(cell) for cell in cells_of("limit", ["lstm"], [1], [])}) == 1 + 3 + 4


def test_a_net_with_files_of_its_own_takes_no_dataset(tmp_path, monkeypatch):
    job_files = []
    monkeypatch.setattr(kept_runs, "ROOT", tmp_path)
    monkeypatch.setattr(kept_runs, "run_job_file", lambda path, folder: job_files.append((path.name, folder)))
    assert dataset_of("siamese", tmp_path, None) is None
    assert job_files == [("make_pairs.py", tmp_path / PAIRS)]
    with pytest.raises(SystemExit, match="--cifar10 PATH is needed"):
        dataset_of("residual8", tmp_path, None)


def test_the_packages_file_compares_with_one_worker(runs):
    cells = list(cells_of("strategies", ["lenet"], [1, 2], [4]))
    put(runs, [cell for cell in cells if cell.workers == 1], 0.9, seconds=10.0)
    put(runs, [cell for cell in cells if cell.variant == "easgd"], 0.895, seconds=4.0)
    put(runs, [cell for cell in cells if cell.variant == "sync"], 0.87)
    rows = measured(["lenet"], [1, 2], runs)["rows"]
    figures = {row["strategy"]: (row["workers"], row["lost_points"], row["times_faster"], row["seeds"]) for row in rows}
    assert figures == {"easgd": (4, 0.5, 2.5, 2), "sync": (4, 3.0, None, 2)}
    times = table("strategies", ["lenet"], [1, 2], runs, of_times=True)
    assert "| | 4 | 2.5 ± 0.0 |  |  |  |  |  | never |  |  |" in times
    svg = ElementTree.fromstring(picture(["lenet"], [1, 2], runs))
    assert len(svg.findall(".//{http://www.w3.org/2000/svg}circle")) == 2


def test_most_seeds_must_have_reached_the_target(runs):
    seeds = [1, 2, 3]
    cells = list(cells_of("strategies", ["lenet"], seeds, [4]))
    put(runs, [cell for cell in cells if cell.workers == 1], 0.9, seconds=10.0)
    own_cells = [cell for cell in cells if cell.variant == "easgd"]
    put(runs, own_cells[:2], 0.895, seconds=4.0)
    put(runs, own_cells[2:], 0.87, seconds=4.0)
    times = table("strategies", ["lenet"], seeds, runs, of_times=True)
    assert times[3].startswith("| | 4 | 2.5 ± 0.0 (2 of 3) |")
    put(runs, own_cells[1:], 0.87, seconds=4.0)
    times = table("strategies", ["lenet"], seeds, runs, of_times=True)
    assert times[3].startswith("| | 4 | never |")


def test_the_time_to_the_target_is_that_of_the_sooner_length(runs, monkeypatch):
    with_longer = replace(NETS["lenet"], longer={8: (900, "stepvalue: 720"), 16: (1_200, "")})
    monkeypatch.setitem(NETS, "lenet", with_longer)
    longer = list(cells_of("longer", ["lenet", "table"], [1], []))
    assert {(cell.net, cell.workers, cell.minibatches) for cell in longer} == {
        ("lenet", 1, 600), ("lenet", 8, 900), ("lenet", 16, 1_200),
    }  # fmt: skip
    assert {cell.options.get("overrides") for cell in longer if cell.workers == 8} == {"stepvalue: 720"}
    cells = [*cells_of("strategies", ["lenet"], [1], [8]), *cells_of("stragglers", ["lenet"], [1], [8])]
    put(runs, [cell for cell in cells if cell.workers == 1], 0.9, seconds=10.0)
    put(runs, [cell for cell in cells if cell.variant in ("easgd", "sync")], 0.87)
    put(runs, [cell for cell in longer if (cell.workers, cell.variant) == (8, "easgd")], 0.89, seconds=5.0)
    slower = [cell for cell in longer if (cell.row, cell.variant) == ("equal workers", "sync") and cell.workers == 8]
    put(runs, slower, 0.89, seconds=5.0)
    put(runs, [cell for cell in cells if (cell.workers, cell.variant) == (8, "sync")], 0.88, seconds=4.0)
    rows = measured(["lenet"], [1], runs)["rows"]
    figures = {(row["strategy"], row["stragglers"]): (row["lost_points"], row["times_faster"]) for row in rows}
    assert figures == {
        ("easgd", 0.0): (3.0, 2.0), ("easgd", 0.125): (3.0, 2.0), ("sync", 0.0): (2.0, 2.5),
        ("sync", 0.125): (2.0, 2.5),
    }  # fmt: skip


@pytest.mark.slow
def test_results_are_kept_for_the_next_machine_but_not_those_of_former_defaults(runs, tmp_path, monkeypatch):
    cells = [cell for cell in cells_of("strategies", ["lenet"], [1], [4]) if cell.variant in ("", "easgd", "sync")]
    put(runs, cells, 0.9)
    write_recorded(tmp_path / "kept.jsonl", runs)
    recorded = read_recorded(tmp_path / "kept.jsonl")
    elsewhere = Runs(tmp_path / "nothing", tmp_path, None, recorded)
    assert len(recorded) == 3
    assert elsewhere.results(cells) == runs.results(cells)
    monkeypatch.setitem(NETS, "lenet", replace(NETS["lenet"], overrides="gamma: 0.3"))
    write_recorded(tmp_path / "kept.jsonl", elsewhere)
    assert (tmp_path / "kept.jsonl").read_text() == ""


def test_every_result_of_the_docs_is_one_of_the_present_defaults():
    recorded = read_recorded(RECORDED)
    runs = Runs(Path("out"), Path("work"), None, recorded)
    cells = [cell for study in STUDIES for cell in cells_of(study, list(NETS), SEEDS, ())]
    assert len(recorded) > 300
    assert sorted(set(recorded) - {runs.file(cell).name for cell in cells}) == []


def test_the_table_of_defaults_is_what_a_run_takes():
    _, _, easgd, *_, diloco = table_of_defaults()
    assert easgd == (
        "| `easgd` | 1 | 3 / 5 / 10 / 18 / 36 | 500 / 500 / 2,000 / 2,000 / 2,000 | 0.45 / 0.3 / 0.3 / 0.3 / 0.3 |"
    )
    assert diloco == "| `diloco` | 10 | 2 / 4 / 4 / 4 / 4 | 500 / 500 / 500 / 800 / 1,600 |  |"


def test_the_table_of_the_choice_has_accuracy_and_times_and_names_what_is_missing(runs):
    cells = list(cells_of("strategies", ["lenet"], [1, 2], []))
    put(runs, [cell for cell in cells if cell.workers == 1], 0.9, seconds=10.0)
    put(runs, [cell for cell in cells if (cell.workers, cell.variant) == (4, "easgd")], 0.895, seconds=4.0)
    put(runs, [cell for cell in cells if (cell.workers, cell.variant) == (8, "sync")], 0.87)
    head, _, *rows = table_of_choice(["lenet", "table"], [1, 2], runs)
    assert head == "| net | workers | `easgd` | `local_sgd` | `sync` |"
    assert rows == [
        "| LeNet, digits | 1 | 90.0 ± 0.0 | 90.0 ± 0.0 | 90.0 ± 0.0 |",
        "| | 2 | not measured | not measured | not measured |",
        "| | 4 | 89.5 ± 0.0, 2.5 ± 0.0 | not measured | not measured |",
        "| | 8 | not measured | not measured | 87.0 ± 0.0, never |",
        "| | 16 | not measured | not measured | not measured |",
    ]


def test_lines_go_between_their_marks():
    page = "a\n<!-- delta begin -->\nold\n<!-- delta end -->\nb\n"
    assert put_between_marks(page, "delta", ["new"]) == page.replace("old", "new")
    with pytest.raises(ValueError, match="no <!-- diloco begin -->"):
        put_between_marks(page, "diloco", ["new"])
    text = (DOCS / "strategies.md").read_text()
    assert "\n".join(table_of_defaults()) in text
    for study in ("strategies", "stragglers", "longer"):
        put_between_marks(text, study, [])
