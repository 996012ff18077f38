import gzip
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.export.manifest import InputContract
from deepspark_ops.predict.inputs.choose import open_inputs
from deepspark_ops.predict.inputs.table_columns import choose_columns, with_chosen_features
from deepspark_ops.predict.samples import BundleForm, SampleForm


def predict_config(path, **options):
    return PredictConfig(bundle="b", input=path, output="o.parquet", **options)


def input_of(name, shape, dtype="float32", axes="N, axis 1"):
    contract = InputContract(name=name, shape=shape, axes=axes, dtype=dtype, channels="gray", preprocessing=())
    return SampleForm.of(contract)


def numbers(n_values):
    return BundleForm((input_of("x", (-1, n_values)),))


def test_columns_of_numbers_without_label_and_id(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"id": [7, 8, 9], "a": [1, 2, None], "b": [0.5, float("inf"), 1.5], "label": [0, 1, 0]}), path
    )
    inputs = open_inputs(predict_config(path), numbers(2))
    records = list(inputs.read())
    assert inputs.n_records == 3
    assert records[0].content.tolist() == [1.0, 0.5]
    assert [(record.id, record.error) for record in records] == [
        ("0", ""),
        ("1", "b is missing or not finite"),
        ("2", "a is missing or not finite"),
    ]
    assert [record.id for record in open_inputs(predict_config(path, id_column="id"), numbers(2)).read()] == [
        "7",
        "8",
        "9",
    ]
    with pytest.raises(ConfigError, match=r"2 columns of numbers \(a, b, \.\.\.\), the bundle takes 5 numbers"):
        open_inputs(predict_config(path), numbers(5))
    with pytest.raises(ConfigError, match=r'input=.*: feature_columns: the table has no column "c"; it has id, a'):
        open_inputs(predict_config(path, feature_columns="a,c"), numbers(2))


def test_a_column_of_lists_over_files_as_spark_writes_them(tmp_path):
    rows = np.arange(600, dtype=np.float32).reshape(200, 3)
    (tmp_path / "_SUCCESS").touch()
    for number, part in enumerate(np.split(rows, 2)):
        table = pa.table({"features": list(part)})
        pq.write_table(table, tmp_path / f"part-{number:05d}.parquet", row_group_size=30)
    inputs = open_inputs(predict_config(tmp_path), numbers(3))
    records = list(inputs.read())
    assert inputs.n_records == 200
    np.testing.assert_array_equal(np.stack([record.content for record in records]), rows)
    assert [record.id for record in records] == [str(number) for number in range(200)]


def test_csv_is_read_by_its_columns_names(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("name,x,y\none,1,2.5\ntwo,3,\n")
    records = list(open_inputs(predict_config(path, feature_columns="y,x", id_column="name"), numbers(2)).read())
    assert (records[0].id, records[0].content.tolist()) == ("one", [2.5, 1.0])
    assert (records[1].id, records[1].error) == ("two", "y is missing or not finite")
    path.write_text("name,x,y\none,1,2.5\ntwo,3,many\nthree, TRUE ,4\n")
    records = list(open_inputs(predict_config(path, feature_columns="y,x", id_column="name"), numbers(2)).read())
    assert [record.error for record in records] == ["", "y is missing or not finite", ""]
    assert records[2].content.tolist() == [4, 1]


@pytest.mark.parametrize("n_rows", [4, 100_000])  # Arrow reads blocks of 1 MB
def test_a_line_of_csv_with_too_few_or_too_many_values_costs_its_row_alone(tmp_path, n_rows):
    lines = [f"row {row},{row},0.5" for row in range(n_rows)]
    broken_lines = {1: "1,2", 2: "1,2,3,4", n_rows - 1: "one"}
    for row, line in broken_lines.items():
        lines[row] = line
    for number in range(2):  # a file each
        (tmp_path / f"{number}.csv").write_text("\n".join(["name,x,y", "", *lines]))
    config = predict_config(tmp_path, feature_columns="x,y", id_column="name")
    records = list(open_inputs(config, numbers(2)).read())
    assert len(records) == 2 * n_rows
    for row, record in enumerate(records):
        if row % n_rows in broken_lines:
            assert (record.id, record.error) == (str(row), "the line is no record of the table")
        else:
            assert (record.id, record.content.tolist()) == (f"row {row % n_rows}", [row % n_rows, 0.5])


def test_no_table_at_all(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"t.parquet: not a readable Parquet file"):
        open_inputs(predict_config(tmp_path / "t.parquet"), numbers(2))


def test_any_part_of_a_table_is_read_by_itself(tmp_path):
    for number in range(3):  # row groups of 30, 30 and 10 in each file
        pq.write_table(
            pa.table({"x": np.arange(70.0) + 70 * number}), tmp_path / f"{number}.parquet", row_group_size=30
        )
    inputs = open_inputs(predict_config(tmp_path), numbers(1))
    for start, stop in [(0, None), (0, 1), (29, 31), (30, 60), (69, 71), (100, 170), (209, 300), (210, None)]:
        rows_of_part = [(record.id, record.content.tolist()) for record in inputs.read(start, stop)]
        assert rows_of_part == [(str(row), [float(row)]) for row in range(start, min(210, stop or 210))], (start, stop)
    (tmp_path / "t.csv").write_text("x\n" + "".join(f"{row}\n" for row in range(200)))
    part = open_inputs(predict_config(tmp_path / "t.csv"), numbers(1)).read(60, 131)
    assert [record.id for record in part] == [str(row) for row in range(60, 131)]


def test_several_inputs_are_columns_of_their_names_or_as_given(tmp_path):
    form = BundleForm((input_of("left", (-1, 2)), input_of("right", (-1, 2, 2, 1), "uint8", "N, H, W, C")))
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"left": [[1.0, 2.0], None], "photo": ["a.png", "b.png"], "key": ["k", "l"]}), path)
    options = {"input_columns": "right=photo", "id_column": "key", "root_folder": tmp_path}
    first, second = open_inputs(predict_config(path, **options), form).read()
    assert (first.id, first.content["left"].tolist(), first.content["right"]) == ("k", [1, 2], tmp_path / "a.png")
    assert (second.id, second.content["left"]) == ("l", None)
    with pytest.raises(
        ConfigError, match=r'input "right": no column right in the table; it has left, photo, key; say .*right=C'
    ):
        open_inputs(predict_config(path), form)
    with pytest.raises(ConfigError, match="no input middle; the bundle has left, right"):
        open_inputs(predict_config(path, input_columns="middle=photo"), form)
    with pytest.raises(ConfigError, match=r"takes 2 inputs \(left, right\): name their columns with input_columns"):
        open_inputs(predict_config(path, feature_columns="left"), form)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_a_text_table_has_the_separators_of_ingestion(tmp_path, separator):
    path = tmp_path / "t.csv"
    path.write_text(f"a{separator}b\n1{separator}2.5\n3{separator}4.5\n")
    assert [record.content.tolist() for record in open_inputs(predict_config(path), numbers(2)).read()] == [
        [1, 2.5],
        [3, 4.5],
    ]


def test_a_folder_of_text_tables_is_one_table(tmp_path):
    for number in range(2):
        with gzip.open(tmp_path / f"part-{number}.csv.gz", "wt") as packed:
            packed.write(f"a,b\n{number},0.5\n")
    inputs = open_inputs(predict_config(tmp_path), numbers(2))
    assert [(record.id, record.content.tolist()) for record in inputs.read()] == [("0", [0, 0.5]), ("1", [1, 0.5])]


def test_a_text_table_may_have_a_single_column_or_numbers_as_names(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("0,1\n1.5,2.5\n")
    assert [record.content.tolist() for record in open_inputs(predict_config(path), numbers(2)).read()] == [[1.5, 2.5]]
    path.write_text("x\n" + "1\n" * 300_000 + "2.5\n")  # Arrow takes whole numbers from the first rows
    assert next(iter(open_inputs(predict_config(path), numbers(1)).read(300_000))).content.tolist() == [2.5]


def test_notes_and_hidden_folders_beside_parquet_files_hold_no_rows(tmp_path):
    for name, values in [("a.parquet", [1.0]), ("day/b.parquet", [2.0]), ("_delta_log/c.parquet", [3.0])]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": values}), tmp_path / name)
    (tmp_path / "README.md").write_text("rows of a day")
    inputs = open_inputs(predict_config(tmp_path), numbers(1))
    assert (inputs.n_records, [record.content.tolist() for record in inputs.read()]) == (2, [[1.0], [2.0]])


def test_a_folder_without_a_table_is_refused(tmp_path):
    with pytest.raises(DataError, match=f"input={tmp_path}: a folder without a file of a Parquet table"):
        open_inputs(predict_config(tmp_path, input_format="parquet"), numbers(1))


def test_feature_columns_are_patterns_as_of_ingestion(tmp_path):
    path = tmp_path / "t.parquet"
    row = {"f1": 1.0, "f2": 2.0, "g": 3.0, "h": Decimal("4.5"), "label": 0}
    pq.write_table(pa.table({name: [value] for name, value in row.items()}), path)
    for patterns, values in [("f*", [1, 2]), ("g,f1", [3, 1]), ("f2..h", [2, 3, 4.5]), ("!f1", [2, 3, 4.5])]:
        inputs = open_inputs(predict_config(path, feature_columns=patterns), numbers(len(values)))
        assert next(inputs.read()).content.tolist() == values
    assert next(open_inputs(predict_config(path), numbers(4)).read()).content.tolist() == [1, 2, 3, 4.5]
    with pytest.raises(ConfigError, match=r'id_column: the table has no column "labl"; did you mean "label"\?'):
        open_inputs(predict_config(path, id_column="labl"), numbers(4))


def test_a_table_of_the_chosen_columns_alone_has_the_same_features():
    """As a task of Spark sees the table."""
    schema = pa.schema([(name, pa.float64()) for name in ("f1", "f2", "g")])
    for patterns, n_values in [("!f1", 2), ("g,f2..f2", 2), ("f*", 2)]:
        config = predict_config("t.parquet", feature_columns=patterns)
        columns = choose_columns(schema, config, numbers(n_values))
        chosen = pa.schema([schema.field(name) for name in columns.names])
        assert choose_columns(chosen, with_chosen_features(config, columns), numbers(n_values)) == columns


def test_images_are_in_the_column_that_ingestion_takes(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"thumbnail": [b"small"], "image": [b"large"], "size": [3]}), path)
    form = BundleForm((input_of("x", (-1, 2, 2, 1), "uint8", "N, H, W, C"),))
    assert next(open_inputs(predict_config(path), form).read()).content == b"large"
    with pytest.raises(ConfigError, match='image_column: column "size" holds whole numbers; allowed: text, bytes'):
        open_inputs(predict_config(path, image_column="size"), form)
    pq.write_table(pa.table({"mask": [b"a"], "photo": [b"b"]}), path)
    with pytest.raises(ConfigError, match=r"several columns of bytes \(mask, photo\); name the one with images"):
        open_inputs(predict_config(path), form)
