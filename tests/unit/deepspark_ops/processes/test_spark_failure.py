from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from deepspark_ops.errors import ConfigError, DataError, DeepSparkError
from deepspark_ops.processes.spark_failure import (
    JVM_ENDED,
    error_of_task,
    jvm_has_ended,
    refused_setting,
    spark_failure,
)

CALL = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"


def message_of(text: str) -> str:
    return spark_failure(RuntimeError(text), master="spark://h:7077", task="worker")


def test_a_python_error_inside_a_java_one_is_what_happened() -> None:
    text = (
        f"{CALL}: org.apache.spark.SparkException: Job aborted\n"
        "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'tensorflow'\n"
    )
    assert message_of(text) == "ModuleNotFoundError: No module named 'tensorflow'"
    assert spark_failure(ValueError(""), master="yarn", task="worker") == "ValueError"


def test_an_error_of_this_program_is_what_happened_and_not_its_cause() -> None:
    text = (
        f"{CALL}Traceback (most recent call last):\n  File x\nFileNotFoundError: [Errno 2] shard\n\nThe above exception"
        " was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File y\n"
        "deepspark_ops.errors.DataError: shard missing; ingest again\n\tat org.apache.spark.Executor\n"
    )
    assert message_of(text) == "deepspark_ops.errors.DataError: shard missing; ingest again"


def test_a_job_that_was_submitted_while_spark_stopped_says_that_the_application_was_ended() -> None:
    error = RuntimeError(": org.apache.spark.SparkException: Task not serializable")
    text = spark_failure(error, master="spark://h:7077", task="worker", has_stopped=True)
    assert "or another cipher (spark.network.crypto.cipher, authEngineVersion" in text
    assert spark_failure(error, master="spark://h:7077", task="worker") == "Task not serializable"


def test_a_job_that_spark_aborted_names_the_task() -> None:
    text = (
        f"{CALL}: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 failed 5"
        " times, most recent failure: Lost task 1.4 in stage 0.0 (TID 8) (localhost executor driver): org.apache"
        ".spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting 'spark.x' to 'true'.\n"
        "\tat org.apache.spark.api.python.PythonRunner.read(PythonRunner.scala:1068)\n"
    )
    assert message_of(text) == (
        "worker 1 was lost 5 times, most recently by org.apache.spark.SparkException: Python worker exited unexpectedly"
        " (crashed); was its host out of memory?"
    )


@pytest.mark.parametrize(
    "reason",
    [
        "java.lang.IllegalStateException: SparkContext has been shutdown",
        "org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down",
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.",
        "org.apache.spark.SparkException: Job aborted due to stage failure: Master removed our application: KILLED",
    ],
)
def test_an_application_that_the_master_refused_or_ended_is_not_out_of_memory(reason: str) -> None:
    assert message_of(f"{CALL}: {reason}\n\tat x.y(z.scala:1)\n").startswith(
        "the application was ended from outside: master=spark://h:7077 does not answer, has another"
        " spark.authenticate.secret than this host or another cipher (spark.network.crypto.cipher, authEngineVersion"
    )


def test_a_jvm_that_is_gone_is_told_by_cause_and_remedy() -> None:
    assert spark_failure(Py4JNetworkError("Answer from Java side is empty"), master="yarn", task="task") == JVM_ENDED
    calls = {"__name__": "py4j.java_gateway"}
    exec("def connect(): raise ConnectionRefusedError(111, 'Connection refused')", calls)
    with pytest.raises(ConnectionRefusedError) as caught:
        calls["connect"]()  # type: ignore[operator]
    assert spark_failure(caught.value, master="yarn", task="task") == JVM_ENDED
    wrapped = DeepSparkError("lost")
    wrapped.__cause__ = caught.value
    assert jvm_has_ended(wrapped)
    # A connection of one's own that is refused is no JVM.
    assert not jvm_has_ended(ConnectionRefusedError(111, "Connection refused"))
    assert not jvm_has_ended(RuntimeError())


class JavaError:
    """Stands for an exception inside a JVM, whose text py4j asks it for."""

    _target_id = "o7"

    class _gateway_client:
        @staticmethod
        def send_command(command: str) -> str:
            raise Py4JNetworkError("Answer from Java side is empty")


def test_a_jvm_that_raised_an_error_lived_then() -> None:
    java = Py4JJavaError("An error occurred while calling o1.x.", JavaError())
    java.__context__ = Py4JNetworkError("an earlier one")
    assert not jvm_has_ended(java)
    wrapped = DeepSparkError("not started")
    wrapped.__cause__ = java
    assert not jvm_has_ended(wrapped)
    # The text is in the JVM: without a text, the JVM has ended.
    assert spark_failure(java, master="yarn", task="task") == JVM_ENDED


def test_a_java_error_without_a_python_error_has_the_java_message() -> None:
    text = (
        f"{CALL}: org.apache.spark.SparkException: Could not initialise the thing\n\tat x.y(z.scala:1)\n"
        "Caused by: java.lang.RuntimeException: deeper\n"
    )
    assert message_of(text) == "Could not initialise the thing"


CREATED = "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
SPARK = f"{CREATED}: org.apache.spark.SparkIllegalArgumentException: "
"""As Spark 4.2 has them; before it had java.lang's."""
MEMORY = (
    f"{SPARK}[INVALID_EXECUTOR_MEMORY] Executor memory 10485760 must be at least 471859200.\nPlease increase executor"
    ' memory using the --executor-memory option or "spark.executor.memory" in Spark configuration. SQLSTATE: F0000\n'
    "\tat org.apache.spark.memory.UnifiedMemoryManager$.getMaxMemory(UnifiedMemoryManager.scala:247)\n"
)
TIMEOUT = (
    f"{SPARK}[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'soon' in the config \"spark.network.timeout\" is invalid. It"
    " should be a/an 'time in SECONDS' value. SQLSTATE: 22022\n\tat org.apache.spark.X.y(X.scala:1)\n"
)
SIZE = (
    f"{CREATED}: java.lang.NumberFormatException: Size must be specified as bytes (b), kibibytes (k), mebibytes (m),"
    " gibibytes (g), tebibytes (t), or pebibytes(p). E.g. 50b, 100k, or 250m.\nFailed to parse byte string: lots\n"
    "\tat org.apache.spark.network.util.JavaUtils.byteStringAs(JavaUtils.java:316)\n"
    "\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:1)\n"
)
SERIALIZER = f"{CREATED}: java.lang.ClassNotFoundException: no.Such\n\tat java.lang.Class.forName0(Native Method)\n"


@pytest.mark.parametrize(
    ("text", "message_start"),
    [
        (
            MEMORY,
            "Spark refuses spark.executor.memory=10m: Executor memory 10485760 must be at least 471859200. Please",
        ),
        (TIMEOUT, "Spark refuses spark.network.timeout=soon: The value 'soon' in the config \"spark.network.timeout\""),
        (SIZE, "Spark refuses spark.driver.maxResultSize=lots: Size must be specified as bytes (b), "),
        (SERIALIZER, "Spark refuses spark.serializer=no.Such: there is no class no.Such"),
        (
            f"{CREATED}: java.lang.IllegalArgumentException: requirement failed: spark.authenticate.secret is short\n",
            "Spark refuses spark.authenticate.secret: requirement failed: spark.authenticate.secret is short",
        ),
        (f"{CREATED}: java.lang.IllegalArgumentException: no\n", "Spark refuses a setting: no"),
    ],
)
def test_a_setting_refused_by_java_is_named_with_its_value(text: str, message_start: str) -> None:
    settings = {
        "spark.app.name": "m",
        "spark.authenticate.secret": "hunter2",
        "spark.driver.maxResultSize": "lots",
        "spark.executor.memory": "10m",
        "spark.network.timeout": "soon",
        "spark.serializer": "no.Such",
    }
    refusal = refused_setting(RuntimeError(text), settings)
    assert refusal is not None
    assert refusal.startswith(message_start)
    assert "hunter2" not in refusal
    assert "\n" not in refusal
    assert "scala" not in refusal
    assert "SQLSTATE" not in refusal


def test_other_errors_are_no_refused_setting() -> None:
    assert refused_setting(RuntimeError(f"{CALL}: org.apache.spark.SparkException: Job aborted\n"), {}) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("deepspark_ops.errors.ConfigError", ConfigError),
        ("deepspark_ops.errors.DataError", DataError),
        ("deepspark_ops.errors.DeepSparkError", DeepSparkError),
        ("caffe_import.errors.DataSourceError", DataError),
    ],
)
def test_an_error_of_this_program_in_a_task_is_raised_as_such(name, kind):
    trace = f"  An exception was thrown from the Python worker:\nTraceback :\n{name}: /a: damaged: 3 bytes\n"
    error = error_of_task(spark_failure(RuntimeError(trace), master="local", task="task"))
    assert (type(error), str(error)) == (kind, "/a: damaged: 3 bytes")
    assert error_of_task("ValueError: no") is None
