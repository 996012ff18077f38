"""An archive of the classes that Spark's JVM loads: ``python -m tests.spark_classes FILE`` writes it.

A test's JVM reads 10,000 classes from Spark's jars, 2 of an application's 6 s of processor time; an archive is mapped
without a read. ``make test`` writes the archive once per environment. Without the archive, or with another Java or
other jars, the JVM loads the classes as ever.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.paths import ROOT

ARCHIVE = ROOT / ".venv" / "spark-classes.jsa"
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM of a test lives for seconds: compiling its code well takes 3 of an application's 9 s of CPU, for nothing."""
APPLICATION = """
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
assert session.sparkContext.parallelize(range(4), 2).map(lambda x: x + 1).sum() == 10
session.stop()
"""


def jvm_options() -> str:
    """Return the options of the JVMs of tests, with an existing archive."""
    # Quiet: an archive that does not fit is no finding, and a job's lines are what tests read.
    return f"{JVM_OPTIONS} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else JVM_OPTIONS


def write_archive(path: Path) -> None:
    """Run a small Spark application whose JVM writes its loaded classes."""
    with TemporaryDirectory() as folder:
        application, archive = Path(folder, "application.py"), Path(folder, "classes.jsa")
        application.write_text(APPLICATION)
        options = f"{JVM_OPTIONS} -Xlog:disable -XX:ArchiveClassesAtExit={archive}"
        command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", "--conf"]
        subprocess.run(
            [*command, "spark.ui.enabled=false", "--conf", "spark.log.level=ERROR", str(application)],
            env={**os.environ, "SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"}, cwd=folder,
            stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(archive.read_bytes())
        part.replace(path)


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
