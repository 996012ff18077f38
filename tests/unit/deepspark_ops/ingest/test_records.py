"""Names as labels: one order for training and test set, whatever their content."""

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.records import SourceIndex, sorted_classes, with_classes
from tests.reference.ingest_in_process import planned_images
from tests.reference.raw_sources import image_bgr, write_images


def index_of(labels, class_names, *, are_names=True):
    return SourceIndex(np.array(labels), ["x"] * len(labels), None, class_names=class_names, are_names=are_names)


def test_labels_become_places_in_the_wanted_order():
    index = index_of([0, 1, 2, 1], ("ant", "bee", "cow"))
    assert with_classes(index, ("cow", "bee")).labels.tolist() == [-1, 1, 0, 1]
    assert with_classes(index, ("ant", "bee", "cow")) is index


def test_numbers_that_a_source_gives_stay():
    index = index_of([0, 1], ("ant", "bee"), are_names=False)
    assert with_classes(index, ("bee", "ant")) is index


def test_a_class_name_of_another_encoding_is_refused():
    assert sorted_classes(["café"]) == ("café",)
    with pytest.raises(DataError, match=r"^the name of class caf\\xe9 is no UTF-8 text"):
        sorted_classes([b"caf\xe9".decode("utf-8", "surrogateescape")])


def test_names_that_are_numbers_are_ordered_by_value():
    assert sorted_classes(["10", "9", "1"]) == ("1", "9", "10")
    assert sorted_classes(["10", "9", "x"]) == ("10", "9", "x")


@pytest.fixture
def source(tmp_path):
    path = write_images(tmp_path / "raw", 6)
    path.write_text("".join(f"img/{i}.png {['bee', 'ant', 'cow'][i % 3]}\n" for i in range(6)))
    return path


def labels_of(plan, split):
    return [label for task in plan.tasks if task.split == split for label in task.labels.tolist()]


def test_a_list_of_names_is_sorted_or_ordered_by_the_file(tmp_path, source):
    assert image_bgr(0).shape == (8, 8, 3)
    plan = planned_images(tmp_path, source, shuffle=False, test_fraction=0)
    assert (plan.class_names, plan.n_classes, labels_of(plan, "train")) == (("ant", "bee", "cow"), 3, [1, 0, 2] * 2)
    (tmp_path / "names.txt").write_text("cow\nbee\nant\n")
    plan = planned_images(tmp_path, source, shuffle=False, test_fraction=0, class_names=tmp_path / "names.txt")
    assert (plan.class_names, labels_of(plan, "train")) == (("cow", "bee", "ant"), [1, 2, 0] * 2)


def test_the_test_set_has_the_training_sets_labels_and_unknown_classes_are_named(tmp_path, source):
    (source.parent / "test.txt").write_text("img/0.png cow\nimg/1.png dodo\nimg/2.png bee\n")
    plan = planned_images(tmp_path, source, shuffle=False, test_source=source.parent / "test.txt")
    assert labels_of(plan, "test") == [2, 1]
    assert [(item.name, item.label, item.reason) for item in plan.rejected["test"]] == [
        ("img/1.png", None, 'class "dodo" is not among the 3 classes')
    ]


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ("ant\nbee\nant\n", {}, 'names.txt: the class "ant" stands there more than once'),
        ("ant\nbee\n", {"n_classes": 3}, "n_classes=3, but names.txt names 2; give one of them"),
        (None, {"n_classes": 4}, "n_classes=4, but list.txt names 3; give one of them"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, source, monkeypatch, names, options, message):
    monkeypatch.chdir(source.parent)
    if names:
        (source.parent / "names.txt").write_text(names)
        options = {**options, "class_names": "names.txt"}
    with pytest.raises(ConfigError, match=message):
        planned_images(tmp_path, source.relative_to(source.parent), shuffle=False, **options)
