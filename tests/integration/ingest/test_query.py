"""The allowed SQL of a query: one SELECT over the source, tables of the catalog and allowed files."""

import pyarrow as pa
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.named_files import ListedFiles
from deepspark_ops.errors import ConfigError
from tests.reference.table_files import write_table

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of the files that the queries name."""
    folder = tmp_path_factory.mktemp("tables")
    write_table(folder / "data" / "t.parquet", pa.table({"a": [1, 2, 3], "label": [0, 1, 0]}))
    write_table(folder / "shared" / "more.parquet", pa.table({"a": [7]}))
    write_table(folder / "secret" / "s.parquet", pa.table({"a": [99]}))
    return folder


@pytest.fixture(scope="module")
def rows(context, folder):
    """Return a function that gives the rows of a query over a table of three rows, in Airflow's confinement."""
    from deepspark_ops.ingest.tables.spark_job import open_table
    from deepspark_ops.processes.spark_context import SparkOnDemand

    source = folder / "data" / "t.parquet"

    def answer(query: str, *, confined: bool = True):
        files = ListedFiles(allowed_root=(folder / "shared",), confined=confined)
        text = query.replace("TMP", str(folder))
        config = IngestConfig(source=source, query=text, output=folder / "out", listed_files=files)
        table = open_table(SparkOnDemand.running(context), config, config.source)
        return sorted(tuple(row) for row in table.frame.collect())

    return answer


@pytest.fixture(scope="module")
def shop(context):
    """Make a table of the catalog, ``shop.customers``."""
    from pyspark.sql import SparkSession

    session = SparkSession(context)
    session.sql("CREATE DATABASE IF NOT EXISTS shop")
    session.sql("CREATE TABLE shop.customers USING parquet AS SELECT 5 AS a")
    yield
    session.sql("DROP TABLE shop.customers")


READS = {
    "SELECT a FROM source WHERE a > 1": [(2,), (3,)],
    "WITH big AS (SELECT a FROM source WHERE a > 2) SELECT * FROM big UNION ALL SELECT a FROM source WHERE a = 1": [
        (1,),
        (3,),
    ],
    "SELECT a, row_number() OVER (ORDER BY a DESC) AS r FROM source": [(1, 3), (2, 2), (3, 1)],
    "SELECT s.a FROM source s JOIN (VALUES (2), (3)) v(b) ON s.a = v.b ORDER BY s.a LIMIT 1": [(2,)],
    "SELECT a FROM source WHERE a IN (SELECT max(a) FROM source GROUP BY label HAVING count(*) > 1)": [(3,)],
    "SELECT explode(array(a, 10)) AS x FROM source TABLESAMPLE (100 PERCENT) WHERE a = 1": [(1,), (10,)],
    "SELECT c.a FROM shop.customers c": [(5,)],
    "SELECT a FROM parquet.`TMP/shared/more.parquet`": [(7,)],
    "SELECT '${env:PATH}' AS a FROM source LIMIT 1": [("${env:PATH}",)],
    "FROM source |> WHERE a = 2 |> SELECT a": [(2,)],
}


@pytest.mark.parametrize("query", READS)
def test_a_select_gives_its_rows(rows, shop, query):
    assert rows(query) == READS[query]


REFUSED = {
    "INSERT OVERWRITE DIRECTORY 'TMP/stolen' USING parquet SELECT * FROM text.`/etc/hostname`": "InsertIntoDir",
    "INSERT OVERWRITE LOCAL DIRECTORY 'TMP/stolen' USING csv SELECT * FROM source": "InsertIntoDir",
    "CREATE TABLE stolen USING parquet AS SELECT * FROM source": "CreateTableAsSelect",
    "DROP TABLE source": "DropTable",
    "SET spark.sql.runSQLOnFiles=true": "SetCommand",
    "ADD JAR '/tmp/x.jar'": "AddJarsCommand",
    "SELECT TRANSFORM(a) USING 'cat /etc/hostname' AS (x) FROM source": "ScriptTransformation",
    "SELECT reflect('java.lang.System', 'getProperty', 'user.home') FROM source": "it calls reflect",
    "SELECT a FROM source WHERE EXISTS (SELECT JAVA_METHOD('java.lang.System', 'getenv', 'HOME'))": "java_method",
    "SELECT * FROM text.`/etc/hostname`": "text.`/etc/hostname`, which is no table of the catalog",
    "SELECT (SELECT max(a) FROM parquet.`TMP/secret/s.parquet`) AS a FROM source": "secret/s.parquet",
    "WITH s AS (SELECT * FROM parquet.`file:TMP/secret/s.parquet`) SELECT * FROM s": "secret/s.parquet",
    "SELECT a FROM source, LATERAL (SELECT a AS b FROM parquet.`TMP/shared/../secret/s.parquet`)": "secret/s.parquet",
    "SELECT a FROM parquet.`TMP/shared/{more,../../secret/s}.parquet`": "no table of the catalog",
    "SELECT a FROM parquet.`s3a://bucket/key`": "no table of the catalog",
    "SELECT * FROM text.README": "no table of the catalog",
    "SELECT * FROM IDENTIFIER('text.`/etc/hostname`')": "text.`/etc/hostname`",
    "SELECT * FROM IDENTIFIER('text.' || '`/etc/hostname`')": "PlanWithUnresolvedIdentifier",
    "SELECT * FROM source WITH (path = '/etc')": "a table has options",
    "BEGIN SELECT 1; END": "allowed: one SELECT statement",
}


@pytest.mark.parametrize("query", REFUSED)
def test_any_other_statement_is_refused_before_spark_runs_it(rows, shop, folder, query):
    with pytest.raises(ConfigError) as error:
        rows(query)
    assert REFUSED[query] in str(error.value)
    assert not (folder / "stolen").exists()


def test_a_person_at_the_command_line_names_any_file_but_changes_nothing(rows, folder):
    assert rows("SELECT a FROM parquet.`TMP/secret/s.parquet`", confined=False) == [(99,)]
    with pytest.raises(ConfigError, match="one SELECT statement that only reads"):
        rows("INSERT OVERWRITE DIRECTORY 'TMP/stolen' USING csv SELECT * FROM source", confined=False)
    assert not (folder / "stolen").exists()


def test_a_link_in_an_allowed_folder_does_not_lead_out_of_it(rows, folder):
    (folder / "shared" / "link.parquet").symlink_to(folder / "secret" / "s.parquet")
    with pytest.raises(ConfigError, match="no table of the catalog"):
        rows("SELECT a FROM parquet.`TMP/shared/link.parquet`")
