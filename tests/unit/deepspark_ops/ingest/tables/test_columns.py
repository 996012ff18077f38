"""Which columns are features, labels and the rest: by options, by type, by usual names."""

import re

import pyarrow as pa
import pytest

from deepspark_ops.config.ingest import SourceConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.tables.columns import Column, choose_names, choose_roles, columns_of

COLUMNS = [
    Column("id", "whole", is_wide=True),
    Column("age", "whole"),
    Column("f1", "real"),
    Column("f2", "real", is_wide=True),
    Column("is_new", "flag"),
    Column("embedding", "numbers"),
    Column("note", "text"),
    Column("weight", "real"),
    Column("Label", "whole"),
    Column("picture", "bytes"),
]


def roles(columns=COLUMNS, **options):
    return choose_roles(SourceConfig(source="t.parquet", **options), columns)


def column_names(columns) -> list[str]:
    return [column.name for column in columns]


def test_all_numbers_but_label_and_id_are_features_and_a_weight_only_where_it_is_named():
    chosen = roles()
    assert column_names(chosen.features) == ["age", "f1", "f2", "is_new", "embedding", "weight"]
    assert (column_names(chosen.labels), chosen.id.name, chosen.weight, chosen.image) == (["Label"], "id", None, None)
    assert column_names(chosen.left_out) == ["note", "picture"]
    assert chosen.is_wide
    chosen = roles(weight_column="weight", group_column="note", feature_columns="f1,is_new")
    assert (column_names(chosen.features), chosen.weight.name, chosen.group.name) == (
        ["f1", "is_new"],
        "weight",
        "note",
    )
    assert not chosen.is_wide


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("f2,age", ["f2", "age"]),
        ("f*", ["f1", "f2"]),
        ("age..is_new,!f2", ["age", "f1", "is_new"]),
        ("f?, f1 ,embedding", ["f1", "f2", "embedding"]),
        ("note", ["note"]),
    ],
)
def test_patterns_choose_in_their_order_and_each_column_once(patterns, expected):
    assert column_names(roles(feature_columns=patterns).features) == expected


def test_a_name_is_taken_before_it_is_a_pattern():
    assert choose_names("a..b,x*,!c", ["a", "a..b", "b", "x*", "xy", "!c"]) == ["a..b", "x*", "!c"]


def test_a_table_of_text_is_refused_with_a_query_for_decimal_commas():
    columns = [Column("price", "text"), Column("Label", "whole")]
    query = "SELECT *, double(replace(price, ',', '.')) AS price_number FROM source"
    with pytest.raises(ConfigError, match=f"make numbers of it by a query: {re.escape(query)}$"):
        roles(columns)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feature_columns": "ages"}, 'feature_columns: the table has no column "ages"; did you mean "age"?'),
        ({"feature_columns": "zz*"}, r'no column "zz\*"; it has id, age, f1, '),
        ({"feature_columns": "age..f9"}, 'no column "f9"; it has id'),
        ({"feature_columns": "f2..age"}, "f2 stands after age"),
        ({"feature_columns": "f1,!f*"}, "no column is left for features; the table has id .whole numbers."),
        ({"feature_columns": "picture"}, 'column "picture" holds bytes, and features are numbers'),
        ({"feature_columns": "age,Label"}, 'column "Label" is also label, .* leave it out: age,Label,!Label'),
        ({"label_column": "y"}, 'label_column: the table has no column "y"'),
        ({"label_column": "picture"}, 'label_column: column "picture" holds bytes; allowed: whole numbers, numbers,'),
        ({"label_column": "f1,note"}, 'column "note" holds text; allowed: whole numbers, numbers, true or false$'),
        ({"id_column": "f1"}, 'id_column: column "f1" holds numbers; allowed: whole numbers, text'),
        ({"image_column": "age"}, 'image_column: column "age" holds whole numbers; allowed: text, bytes'),
        ({"image_column": "picture", "feature_columns": "f1"}, "give one of them"),
    ],
)
def test_mistakes_name_the_option_and_what_there_is(options, message):
    with pytest.raises(ConfigError, match=message):
        roles(**options)


def test_without_a_label_the_message_asks_for_one():
    with pytest.raises(ConfigError, match=r"label_column: no column has a usual name .label, labels.* has f1, f2$"):
        roles([Column("f1", "real"), Column("f2", "real")])


def test_a_column_of_bytes_with_a_usual_name_makes_a_table_of_images():
    columns = [Column("img", "bytes"), Column("label", "whole"), Column("f1", "real")]
    chosen = roles(columns)
    assert (chosen.image.name, chosen.features, column_names(chosen.left_out)) == ("img", (), ["f1"])
    assert column_names(roles(columns, feature_columns="f1").features) == ["f1"]


def test_types_of_arrow():
    kinds = {
        pa.int16(): ("whole", False),
        pa.int64(): ("whole", True),
        pa.float32(): ("real", False),
        pa.decimal128(9, 2): ("real", True),
        pa.bool_(): ("flag", False),
        pa.string(): ("text", False),
        pa.binary(): ("bytes", False),
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]): ("bytes", False),
        pa.list_(pa.float32()): ("numbers", False),
        pa.list_(pa.float64(), 4): ("numbers", True),
        pa.list_(pa.string()): ("other", False),
        pa.timestamp("us"): ("time", False),
        pa.date32(): ("time", False),
        pa.null(): ("empty", False),
    }
    arrow_columns = columns_of(pa.schema([(str(i), kind) for i, kind in enumerate(kinds)]))
    assert [(column.kind, column.is_wide) for column in arrow_columns] == list(kinds.values())
