"""From a config to tasks: nothing lost, options that do not fit, digests of every change."""

import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest import image_plan
from deepspark_ops.ingest.recipe import make_recipe
from tests.reference.ingest_in_process import planned_images
from tests.reference.raw_sources import write_cifar, write_images, write_tar


@pytest.fixture
def source(tmp_path):
    return write_images(tmp_path / "raw", 30)


def positions_of(plan, split):
    return np.concatenate([task.positions for task in plan.tasks if task.split == split]).tolist()


def test_every_record_is_in_exactly_one_task(tmp_path, source):
    plan = planned_images(tmp_path, source, samples_per_shard=7)
    train, test = positions_of(plan, "train"), positions_of(plan, "test")
    assert sorted(train + test) == list(range(30))
    assert [len(task.positions) for task in plan.tasks] == [5, 6, 6, 6, 7]
    assert [(task.split, task.number, task.first) for task in plan.tasks] == [
        ("train", 0, 0),
        ("train", 1, 5),
        ("train", 2, 11),
        ("test", 0, 0),
        ("test", 1, 6),
    ]
    for task in plan.tasks:
        assert task.labels.tolist() == [position % 3 for position in task.positions.tolist()]
        assert task.names == tuple(f"img/{position}.png" for position in task.positions.tolist())


def test_order_is_the_sources_without_shuffle_and_follows_the_seed_with(tmp_path, source):
    plain = positions_of(planned_images(tmp_path, source, shuffle=False, test_fraction=0), "train")
    first, repeated, other = (
        positions_of(planned_images(tmp_path, source, test_fraction=0, seed=s), "train") for s in (1, 1, 2)
    )
    assert plain == list(range(30)) == sorted(first)
    assert first == repeated != other


def test_a_grown_source_keeps_each_record_on_its_side(tmp_path):
    source = write_images(tmp_path / "raw", 60)
    lines = source.read_text().splitlines(keepends=True)
    source.write_text("".join(lines[20:50]))
    old_plan = planned_images(tmp_path, source)
    source.write_text("".join(reversed(lines)))
    grown = planned_images(tmp_path, source, resize_height=4, resize_width=4)
    for split in ("train", "test"):
        first, second = (
            {name for task in plan.tasks if task.split == split for name in task.names} for plan in (old_plan, grown)
        )
        assert first < second


def test_test_source_is_the_whole_test_split(tmp_path, source):
    (source.parent / "test.txt").write_text("img/3.png 0\nimg/4.png 1\n")
    plan = planned_images(tmp_path, source, test_source=source.parent / "test.txt")
    assert (len(positions_of(plan, "train")), len(positions_of(plan, "test"))) == (30, 2)
    assert plan.n_records == 32


def test_labels_outside_the_classes_are_left_out_and_named(tmp_path, source):
    plan = planned_images(tmp_path, source, n_classes=2, test_fraction=0)
    assert len(positions_of(plan, "train")) == 20
    assert len(plan.rejected["train"]) == 10
    item = plan.rejected["train"][0]
    assert (item.position, item.name, item.label, item.reason) == (2, "img/2.png", 2, "label 2 is outside [0, 2)")


def test_class_names_count_the_classes(tmp_path, source):
    (tmp_path / "names.txt").write_text("a b\nc\n\nd\ne\n")
    plan = planned_images(tmp_path, source, class_names=tmp_path / "names.txt")
    assert (plan.class_names, plan.n_classes) == (("a b", "c", "d", "e"), 4)
    archive = write_tar(tmp_path / "n.tar.gz", {"names.txt": b"x\ny\nz\n"})
    plan = planned_images(tmp_path, source, class_names=f"{archive}::names.txt")
    assert plan.class_names == ("x", "y", "z")


def test_names_that_come_with_the_source_are_used(tmp_path):
    (tmp_path / "c").mkdir()
    write_cifar(tmp_path / "c" / "data_batch_1.bin", [0, 1, 1, 0])
    (tmp_path / "c" / "batches.meta.txt").write_text("cat\ndog\n")
    plan = planned_images(tmp_path, tmp_path / "c", test_fraction=0.5)
    assert (plan.class_names, plan.n_classes, plan.tasks[0].shape) == (("cat", "dog"), 2, (3, 32, 32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_names": "gone.txt"}, "class_names=gone.txt: no such file"),
        ({"test_fraction": 0.001}, "test_fraction=0.001 leaves the test set empty"),
        ({"test_fraction": 0.999}, "test_fraction=0.999 leaves the train set empty"),
        ({"class_names": "empty.txt"}, r"class_names=.*empty\.txt: the file is empty"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, source, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ConfigError, match=message):
        planned_images(tmp_path, source, **options)


def test_wild_labels_ask_for_n_classes(tmp_path, source):
    source.write_text(source.read_text() + "img/0.png 999999999\n")
    with pytest.raises(ConfigError, match="the largest label is 999,999,999; give n_classes"):
        planned_images(tmp_path, source)
    assert planned_images(tmp_path, source, n_classes=3).n_classes == 3
    source.write_text("img/0.png -1\n")
    with pytest.raises(DataError, match=r"every label is negative, e\.g\. -1"):
        planned_images(tmp_path, source)


def test_source_without_a_readable_record_names_the_first(tmp_path):
    (tmp_path / "list.txt").write_text("a.png 0\nb.png 0\n")
    with pytest.raises(DataError, match=r"none of the first 2 records can be used: a\.png: No such file or directory"):
        planned_images(tmp_path, tmp_path / "list.txt")


def test_first_readable_record_decides_the_shape(tmp_path, source):
    (source.parent / "img" / "0.png").write_bytes(b"")
    assert planned_images(tmp_path, source).tasks[0].shape == (3, 8, 8)
    assert planned_images(tmp_path, source, gray=True, resize_height=4, resize_width=6).tasks[0].shape == (1, 4, 6)


def test_shards_stay_below_two_gigabytes(tmp_path, source, monkeypatch):
    monkeypatch.setattr(image_plan, "MAX_SHARD_BYTES", 5 * 4096 / 0.9)
    assert max(len(task.positions) for task in planned_images(tmp_path, source, test_fraction=0).tasks) == 5


def test_recipe_sees_source_and_options_not_the_place(tmp_path, source):
    def digest(**options) -> str:
        return make_recipe(IngestConfig(**{"source": source, "output": tmp_path / "out", **options})).sha256

    base = digest()
    assert base == digest() == digest(output=tmp_path / "elsewhere", max_rejected_fraction=0.5)
    assert base == digest(master="yarn", listen_address="192.0.2.2", insecure_network=True)
    (tmp_path / "names.txt").write_text("a\n")
    named = digest(class_names=tmp_path / "names.txt")
    (tmp_path / "names.txt").write_text("b\n")
    other_digests = [digest(seed=2), digest(gray=True), named, digest(class_names=tmp_path / "names.txt")]
    source.write_text(source.read_text() + "img/1.png 2\n")
    assert len({base, *other_digests, digest()}) == 6


def test_digests_of_datasets_made_before_stay_when_options_are_added(tmp_path, monkeypatch):
    """The digest of a fixed source under a fixed name, as recipe version 3 had it before later options were added."""
    monkeypatch.chdir(tmp_path)
    write_cifar(tmp_path / "one.bin", [0, 1])
    config = IngestConfig(source="one.bin", output="out")
    assert make_recipe(config).sha256 == "da510be85b32005d0f99621341c7fee2c2a94dd57bc47fa880729caecdbfcad0"


def test_shards_asked_for_are_the_shards_of_each_set(tmp_path):
    source = write_images(tmp_path / "raw", 40)
    plan = planned_images(tmp_path, source, shards=1, test_fraction=0.3)
    assert [(task.split, task.number) for task in plan.tasks] == [("train", 0), ("test", 0)]
    sizes = [len(task.names) for task in planned_images(tmp_path, source, shards=3, test_fraction=0).tasks]
    assert sizes == [13, 13, 14]


def test_one_shard_of_thousands_where_the_default_makes_eight(tmp_path):
    image = write_images(tmp_path / "raw", 1).read_text().split()[0]
    source = tmp_path / "raw" / "many.txt"
    source.write_text(f"{image} 0\n" * 1200)
    assert len(planned_images(tmp_path, source, test_fraction=0).tasks) == 8
    assert len(planned_images(tmp_path, source, test_fraction=0, shards=1).tasks) == 1


def test_too_few_shards_say_how_many_there_must_be(tmp_path, monkeypatch):
    monkeypatch.setattr(image_plan, "MAX_SHARD_BYTES", 10 * 4096)
    source = write_images(tmp_path / "raw", 20)
    with pytest.raises(ConfigError, match=r"shards=2: the train set has 20 samples, .* room for 9 .* shards=3 or more"):
        planned_images(tmp_path, source, shards=2, test_fraction=0)
    assert len(planned_images(tmp_path, source, shards=2, test_fraction=0, encoded=True).tasks) == 2
