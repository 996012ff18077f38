from __future__ import annotations

from types import SimpleNamespace

import pytest

from deepspark_ops.evaluate.samples import Samples


def labelled_samples(*, label_kind: str | None, class_names: tuple[str, ...] = ()) -> Samples:
    """Samples of a dataset with these facts, and nothing to read."""
    table = label_kind and SimpleNamespace(label_kind=label_kind, labels=("price", "weight"))
    manifest = SimpleNamespace(class_names=class_names, split_rule=None, table=table)
    layer = SimpleNamespace(
        name="data", batch_size=1, samples=SimpleNamespace(n_samples=1, dataset=SimpleNamespace(manifest=manifest))
    )
    return Samples([layer])  # type: ignore[list-item]


@pytest.mark.parametrize("task", ["regression", "multi_label"])
def test_a_tables_label_columns_name_what_is_answered(task: str) -> None:
    assert labelled_samples(label_kind="value").answer_names(task) == ("price", "weight")  # type: ignore[arg-type]


def test_classes_name_the_answers_of_what_chooses_among_them() -> None:
    assert labelled_samples(label_kind="class", class_names=("cat",)).answer_names("classification") == ("cat",)
    assert labelled_samples(label_kind=None, class_names=("cat",)).answer_names("multi_label") == ("cat",)
    assert labelled_samples(label_kind=None, class_names=("cat",)).answer_names("regression") == ()
