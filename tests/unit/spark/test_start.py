"""A JVM starts with the archive of classes, and without it when it cannot use it."""

import subprocess
import sys
from pathlib import Path

START = """
import sys
from pathlib import Path
from tidemark.spark import session

session.class_archive = lambda: Path(sys.argv[1])
spark = session.start_spark(app="test")
options = spark.sparkContext.getConf().get("spark.driver.defaultJavaOptions")
assert sys.argv[1] in options
print(spark.range(3).count())
session.stop_spark(spark)
"""


def test_an_archive_that_is_no_use_is_passed_over_in_silence(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    archive.write_bytes(b"garbage" * 1_000)
    command = [sys.executable, "-c", START, str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
