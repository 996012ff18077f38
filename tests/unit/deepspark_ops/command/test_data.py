"""``deepspark data``: its description of a dataset, the damage it names, the difference of two datasets."""

import json
import shutil

import cv2
import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.spark_job import run_ingest
from deepspark_ops.ingest.versions.kept_versions import version_digest
from deepspark_ops.shards.manifest import manifest_path
from tests.reference.command_line import invoke
from tests.reference.dataset_files import put_manifest_text
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images
from tests.reference.table_files import a_table, write_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dataset of 30 images of classes 0, 1, 2 in its first version, with four changes in its second."""
    folder = tmp_path_factory.mktemp("data")
    source = write_images(folder / "raw", 40)
    lines = source.read_text().splitlines()
    config = IngestConfig(source=source, output=folder / "set", samples_per_shard=10)
    source.write_text("\n".join(lines[:30]) + "\n")
    ingest(config, folder / "work")
    shutil.copytree(folder / "set", folder / "first")
    images = source.parent / "img"
    (images / "4.png").write_bytes((images / "38.png").read_bytes())
    source.write_text("\n".join([*lines[1:10], "img/10.png 0", *lines[11:32]]) + "\n")
    ingest(config, folder / "work", goes_on=True)
    return folder


def data_command(*arguments) -> tuple[int, str]:
    result = invoke("data", *arguments)
    return result.exit_code, result.stdout + result.stderr


def test_show_has_splits_classes_digests_options_and_versions(folder):
    code, text = data_command("show", folder / "set", "--json")
    shown = json.loads(text)
    assert (code, shown["version"], shown["digest"]) == (0, 2, version_digest(folder / "set"))
    assert shown["previous"] == version_digest(folder / "first")
    assert {split: len(part["shards"]) for split, part in shown["splits"].items()} == {"train": 3, "test": 3}
    assert sum(sum(part["label_histogram"]) for part in shown["splits"].values()) == 31
    assert sum(part["n_excluded"] for part in shown["splits"].values()) == 3
    assert shown["options"]["samples_per_shard"] == 10
    assert [version["version"] for version in shown["versions"]] == [1]
    code, text = data_command("show", folder / "set")
    assert code == 0
    assert all(word in text for word in ("version 2", "train", "3x8x8", "lmdb", "seed=1", "version 1: train "))


def test_a_table_is_shown_with_the_format_of_its_shards(tmp_path):
    source = write_table(tmp_path / "t.parquet", a_table(30))
    options = {"feature_columns": "f*", "label_column": "label", "output": tmp_path / "set"}
    run_ingest(IngestConfig(source=source, **options))
    assert json.loads(data_command("show", tmp_path / "set", "--json")[1])["options"]["shard_format"] == "hdf5"
    text = data_command("show", tmp_path / "set")[1]
    assert "shard_format=hdf5" in text
    assert "lmdb" not in text


def test_verify_reads_everything_and_names_what_is_damaged(folder, tmp_path):
    code, text = data_command("verify", folder / "set")
    assert (code, text.count("every record can be read")) == (0, 2)
    shutil.copytree(folder / "set", tmp_path / "set")
    shards = sorted((tmp_path / "set" / "train").glob("*.lmdb"))
    content = bytearray((shards[1] / "data.mdb").read_bytes())
    content[len(content) // 2] ^= 1
    (shards[1] / "data.mdb").write_bytes(bytes(content))
    damaged = manifest_path(tmp_path / "set", "test")
    content = damaged.read_bytes()
    damaged.write_text("{")
    code, text = data_command("verify", tmp_path / "set")
    assert code == 2
    assert str(damaged) in text
    damaged.write_bytes(content)
    code, text = data_command("verify", tmp_path / "set")
    assert code == 2
    assert f"{shards[1]}/data.mdb: SHA-256 is" in text
    assert "test: " in text  # the other split was looked at all the same


def test_verify_finds_records_that_say_another_class(folder, tmp_path):
    shutil.copytree(folder / "first", tmp_path / "set")
    fields = json.loads(manifest_path(tmp_path / "set", "train").read_text())
    histogram = fields["label_histogram"]
    histogram[0], histogram[1] = histogram[0] - 1, histogram[1] + 1
    put_manifest_text(tmp_path / "set", "train", json.dumps(fields))
    code, text = data_command("verify", tmp_path / "set")
    assert code == 2
    assert "samples of each label, the manifest says otherwise" in text


def test_diff_tells_every_kind_of_change_apart(folder):
    code, text = data_command("diff", folder / "first", folder / "set", "--json")
    difference = json.loads(text)
    assert code == 0

    def names(kind):
        return sorted(name for part in difference[kind].values() for name in part)

    assert names("added") == ["img/30.png", "img/31.png"]
    assert names("removed") == ["img/0.png"]
    assert names("changed") == ["img/4.png"]
    assert [change for part in difference["relabelled"].values() for change in part] == [
        {"name": "img/10.png", "before": "1", "after": "0"}
    ]
    assert (difference["moved"], difference["options"], difference["is_equal"]) == ([], {}, False)
    for split, classes in difference["classes"].items():
        shown = {name: pair["after"] - pair["before"] for name, pair in classes.items()}
        assert all(shown.values()), split
    # With one dataset: the difference from the previous version, the same as before.
    code, since = data_command("diff", folder / "set", "--json")
    assert code == 0
    since = json.loads(since)
    assert {**since, "before": difference["before"]} == difference
    assert since["before"]["digest"] == difference["before"]["digest"]
    code, text = data_command("diff", folder / "set")
    assert "other class in " in text
    assert "img/10.png (1 -> 0)" in text


def test_diff_of_equal_samples_and_of_other_options(folder, tmp_path):
    source = folder / "raw" / "list.txt"
    config = IngestConfig(source=source, output=tmp_path / "a", samples_per_shard=10)
    ingest(config, tmp_path / "work")
    _, text = data_command("diff", folder / "set", tmp_path / "a", "--json")
    assert json.loads(text)["is_equal"]
    ingest(config.model_copy(update={"output": tmp_path / "b", "test_fraction": 0.5}), tmp_path / "work")
    difference = json.loads(data_command("diff", tmp_path / "a", tmp_path / "b", "--json")[1])
    assert difference["options"] == {"test_fraction": {"before": 0.2, "after": 0.5}}
    assert {(change["before"], change["after"]) for change in difference["moved"]} == {("train", "test")}
    assert not (difference["added"])
    assert not (difference["removed"])
    assert not (difference["changed"])
    assert not (difference["relabelled"])


def test_sample_writes_a_page_or_a_picture(folder, tmp_path):
    assert data_command("sample", folder / "set", "--output", tmp_path / "s.html")[0] == 0
    page = (tmp_path / "s.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    code, text = data_command(
        "sample", folder / "set", "--output", tmp_path / "s.png", "--split", "test", "--samples", 2
    )
    assert (code, "3 classes of test" in text) == (0, True)
    picture = cv2.imread(str(tmp_path / "s.png"))
    assert picture.shape[0] == 3 * (20 + 6)
    assert np.unique(picture[:, 160:]).size > 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "gone"], "gone: no such dataset folder; give the OUTPUT of an ingestion"),
        (["verify", "."], "no dataset of an ingestion"),
        (["diff", "first"], "first: no version before to compare with: it has none"),
        (["sample", "set", "--output", "a.gif"], "output=a.gif: allowed: a name that ends in .html or .png"),
        (["sample", "set", "--output", "a.png", "--split", "validation"], "split=validation: set has train, test"),
    ],
)
def test_mistakes_are_one_message(folder, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    code, text = data_command(*arguments)
    assert code == 2
    assert text.startswith("error: ")
    assert message in text.replace("\n", " ")
