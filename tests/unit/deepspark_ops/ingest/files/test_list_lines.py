"""The lines of image lists: Caffe's, with commas, with names of classes, and mixtures that cannot be meant."""

import pytest

from deepspark_ops.ingest.files.list_lines import split_lines, split_table, table_columns


def pairs(text: str) -> list[tuple[str, str]]:
    lines = split_lines(text)
    return list(zip(lines.paths, lines.labels, strict=True))


@pytest.mark.parametrize(
    ("text", "expected", "are_names"),
    [
        ("a.jpg 1\nb c.jpg\t-2\n", [("a.jpg", "1"), ("b c.jpg", "-2")], False),
        ("a.jpg,1\nb c.jpg, 2\n", [("a.jpg", "1"), ("b c.jpg", "2")], False),
        ("path,label\na.jpg,1\n", [("a.jpg", "1")], False),
        ("image,class\na 1.jpg,cat\n", [("a 1.jpg", "cat")], True),
        ('"a,b.jpg",1\n"c.jpg","2"\n', [("a,b.jpg", "1"), ("c.jpg", "2")], False),
        ("a.jpg cat\nb c.jpg dog\n", [("a.jpg", "cat"), ("b c.jpg", "dog")], True),
        ("a,1.jpg cat\nb,2.jpg dog\nc.jpg dog", [("a,1.jpg", "cat"), ("b,2.jpg", "dog"), ("c.jpg", "dog")], True),
        ("path,kind\na.jpg,cat\nb.jpg,dog\n", [("a.jpg", "cat"), ("b.jpg", "dog")], True),
        ("path,kind\na.jpg,cat\nb,dog\n", [("path", "kind"), ("a.jpg", "cat"), ("b", "dog")], True),
        ("path,kind\n", [("path", "kind")], True),
        ("label,1\n", [("label", "1")], False),
    ],
)
def test_separator_and_labels_of_a_list_are_detected(text, expected, are_names):
    assert pairs(text) == expected
    assert split_lines(text).are_names is are_names
    assert split_lines(text).bad == ()


def test_bad_lines_say_what_they_lack():
    assert split_lines("a.jpg 1\n\nb.jpg\nmy photo.jpg\nc.jpg cat\n").bad == (
        (3, "b.jpg", 'line 3 is not "path label"'),
        (4, "my photo.jpg", 'line 4 is not "path label"'),
        (5, "c.jpg cat", 'line 5 is not "path label": "cat" is no whole number, as labels of other lines are'),
    )
    assert split_lines("a.jpg,1\nb.jpg,cat\n,2\n").bad == (
        (2, "b.jpg,cat", 'line 2 is not "path label": "cat" is no whole number, as labels of other lines are'),
        (3, ",2", 'line 3 is not "path label"'),
    )


def test_paths_alone_are_no_list_of_names():
    assert pairs("my cat.jpg\nmy dog.jpg\n") == pairs("a.jpg\nb.jpg\n") == pairs("") == []


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_table_has_any_separator(separator):
    rows = [["set", "file", "kind"], ["train", "my 1,5.jpg", "cat"], ["test", "b.jpg", "dog"]]
    rows[1][1] = '"my 1,5.jpg"'
    lines = split_table("\n".join(map(separator.join, rows)), "file", "kind", "set")
    assert (lines.paths, lines.labels) == (("my 1,5.jpg", "b.jpg"), ("cat", "dog"))
    assert (lines.splits, lines.bad) == (("train", "test"), ())
    assert split_table("\n".join(map(separator.join, rows)), "file", "species") is None


def test_a_table_has_more_columns_in_every_line():
    assert table_columns("id,path,label\n1,a.jpg,3\n") == ("id", "path", "label")
    assert table_columns("a,b.jpg,3\nc.jpg,3\n") == table_columns("a.jpg,1\n") == table_columns("") == ()
