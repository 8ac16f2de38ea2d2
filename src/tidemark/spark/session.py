"""Spark sessions, configured in one place.

Ticks are many and tiny, hydrations are few and large; what is right for one is wrong for the
other (measured: code generation off makes a small tick half again as fast and a large scan twice
as slow). So a replica keeps one Spark context and gives each piece of work a session with the
settings for its size. Sessions have their own temporary views, so nothing is shared by accident.

    master      local[*]                      threads of this process
                spark://host:port             a standalone cluster (docs/operations.md, "Spark")
    blob        s3://bucket/prefix?endpoint=  whose parts Spark reads as s3a://bucket/prefix/part
    TIDEMARK_DRIVER_MEMORY  2g                heap of this process's JVM
    TIDEMARK_JAVA_OPTIONS                     more options of it
    TIDEMARK_S3A_JARS       <environment>/s3a where the jars for s3a:// are
    TIDEMARK_KAFKA_JARS     <environment>/kafka-spark where the jars for Kafka and Avro are
                            <environment>/spark-classes.jsa is what a JVM starts quickly with
    TIDEMARK_SPARK_UI       on, if local      whether a replica shows its jobs on a port of its own
    TIDEMARK_SPARK_LOG      fatal             how much Spark's JVM says on stderr (warn, info, ...)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tidemark.errors import InvalidUsage, Unavailable

MIN_JAVA = 17

AVRO_LIMIT = "-Dorg.apache.avro.limits.collectionItems.maxLength=4000000"
"""A damaged message may say that it is an array of billions: that must not cost the JVM."""

STACK = "-Xss8m"
"""Catalyst calls itself for every level of a plan, and a plan of many fragments has many."""

MASTER_SECONDS = 5.0
"""How long a Spark master has to take a connection."""

JVM_SECONDS = 60.0
"""How long a JVM has to end."""

CANCEL_EVERY = 0.5
"""Seconds between requests to end what goes on although it was cancelled."""

S3A_CREDENTIALS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
"""Where S3A looks for credentials: the places, in the order, that persist.s3 does."""

S3_VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"),
)
"""What executors are told of this process's environment: tasks open the blob store themselves."""

COMMON = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Not Kafka: the connector's first interface makes a row of Java objects of each message.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # Not as the session that we are given may have it: what our texts mean depends on these.
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.optimizer.disableHints": "false",
    "spark.sql.crossJoin.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # Sort-merge joins in one partition need no exchange and no broadcast job.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}

SMALL = {
    **COMMON,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

PREPARED = {
    **SMALL,
    # Compiled once and run a thousand times: what is too slow for a text that is planned each time.
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    # Leaves are RDDs, of whatever size; Spark takes those for huge and shuffles them if allowed to.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.defaultSizeInBytes": str(1024 * 1024),
    "spark.sql.maxSinglePartitionBytes": f"{2**63 - 1}b",
}

LARGE = {
    **COMMON,
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "16",
    # As many as there are cores.
    "spark.sql.leafNodeDefaultParallelism": None,
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.autoBroadcastJoinThreshold": str(32 * 1024 * 1024),
    # A large table as a local relation is a Java object for each row, in every copy of the plan.
    "spark.sql.execution.arrow.localRelationThreshold": str(1024 * 1024),
}

PEEKS, MAINTENANCE, HYDRATION = "peeks", "maintenance", "hydration"

POOLS = {
    # (weight, tasks that it gets before a pool that has its own has one more)
    PEEKS: (100, 1_000),
    MAINTENANCE: (10, 1),
    HYDRATION: (1, 0),
}
"""Who goes first where jobs share this Spark: somebody waits for a peek, a view waits for its tick,
and what is being hydrated takes the rest. Jobs of no pool are with the last."""


def use_pool(spark: SparkSession, pool: str) -> None:
    """What this thread runs from now on, it runs in that pool."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


@contextlib.contextmanager
def cancellable(spark: SparkSession, tag: str) -> Iterator[None]:
    """Jobs of this thread meanwhile can be ended by `cancel_tagged`."""
    context = spark.sparkContext
    context.addJobTag(tag)
    context.setInterruptOnCancel(True)
    try:
        yield
    finally:
        context.removeJobTag(tag)


def cancel_tagged(spark: SparkSession, tag: str) -> None:
    """End the jobs that run with that tag; the next one of the same thread begins all the same."""
    spark.sparkContext.cancelJobsWithTag(tag)


_groups: set[str] = set()
"""Those that work is under way for."""


@contextlib.contextmanager
def job_group(spark: SparkSession, group: str, description: str) -> Iterator[None]:
    """Jobs of this thread meanwhile can be ended by `cancel_group`."""
    context: Any = spark.sparkContext
    _groups.add(group)
    try:
        context.setJobGroup(group, description, interruptOnCancel=True)
        yield
    finally:
        _groups.discard(group)
        # What this thread does next was not cancelled. A JVM that is gone does nothing next.
        with contextlib.suppress(Py4JError, ConnectionError):
            context._jsc.clearJobGroup()


def cancel_group(spark: SparkSession, group: str) -> None:
    """End the jobs of a group, also those that it has not begun yet."""
    context: Any = spark.sparkContext
    context._jsc.sc().cancelJobGroupAndFutureJobs(group)
    if group in _groups:
        # Spark keeps the last job of a query from beginning, but not the shuffles before it.
        again = threading.Timer(CANCEL_EVERY, cancel_group, (spark, group))
        again.daemon = True
        again.start()


def jobs_run(spark: SparkSession) -> int:
    """How many jobs Spark has run so far."""
    context: Any = spark.sparkContext
    return int(context._jsc.sc().dagScheduler().numTotalJobs())


def start_spark(
    *,
    master: str = "local[*]",
    app: str = "tidemark",
    blob: str | None = None,
    settings: Mapping[str, str] | None = None,
    java_options: str | None = None,
) -> SparkSession:
    """Start this process's Spark context, quietly; `settings` go before ours.

    With an s3:// `blob`, Spark reads the addresses that the blob's `uri` gives. `java_options`
    are those of a JVM that does not use the archive of classes.
    """
    find_java()
    # Workers must run this very Python, not whatever `python3` is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    conf = SparkConf().setMaster(master).setAppName(app)
    conf.setAll(
        [
            ("spark.ui.enabled", "false"),
            ("spark.ui.showConsoleProgress", "false"),
            ("spark.driver.memory", os.environ.get("TIDEMARK_DRIVER_MEMORY", "2g")),
            ("spark.driver.maxResultSize", "0"),
            (
                "spark.driver.defaultJavaOptions",
                f"{_log_options()} {STACK} {AVRO_LIMIT} {java_options or _archive_options()} "
                + os.environ.get("TIDEMARK_JAVA_OPTIONS", ""),
            ),
            ("spark.executor.defaultJavaOptions", f"{STACK} {AVRO_LIMIT}"),
            ("spark.scheduler.mode", "FAIR"),
            # Executors that do not let go of a cancelled task are replaced.
            ("spark.task.reaper.enabled", "true"),
            ("spark.task.reaper.killTimeout", "30s"),
            ("spark.task.reaper.threadDump", "false"),
            ("spark.sql.codegen.cache.maxEntries", "5000"),
            ("spark.sql.catalogImplementation", "in-memory"),
            *_driver_address(master).items(),
            *SMALL.items(),
            *_with_jars(master, blob).items(),
            *(settings or {}).items(),
        ]
    )
    if SparkContext._gateway is None:
        SparkContext._ensure_initialized(gateway=_launch_quietly(conf))
    with tempfile.NamedTemporaryFile("w", prefix="tidemark-pools-", suffix=".xml") as pools:
        # Read when the context starts, and never again.
        pools.write(_allocations())
        pools.flush()
        conf.set("spark.scheduler.allocation.file", Path(pools.name).as_uri())
        return SparkSession.builder.config(conf=conf).getOrCreate()


def ui_settings(master: str) -> dict[str, str]:
    """Spark's own pages, for looking on only. Nobody is asked for a password there, so they are on
    loopback, and where Spark would listen on all addresses only if that was asked for."""
    is_local = master.startswith("local")
    wanted = os.environ.get("TIDEMARK_SPARK_UI", "on" if is_local else "off")
    if wanted not in ("on", "off"):
        raise InvalidUsage(f"TIDEMARK_SPARK_UI is {wanted!r}", hint="it is on or off")
    if wanted == "off":
        return {}
    if is_local:
        # The only thing that Spark's pages ask where to listen.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.ui.killEnabled": "false",
        # A tick is two jobs: what is kept are minutes.
        "spark.ui.retainedJobs": "500",
        "spark.ui.retainedStages": "500",
        "spark.ui.retainedTasks": "5000",
        "spark.sql.ui.retainedExecutions": "200",
    }


def _allocations() -> str:
    """`POOLS` as Spark reads it."""
    pools = "".join(
        f'<pool name="{name}"><schedulingMode>FAIR</schedulingMode>'
        f"<weight>{weight}</weight><minShare>{share}</minShare></pool>"
        for name, (weight, share) in POOLS.items()
    )
    return f"<allocations>{pools}</allocations>"


@contextlib.contextmanager
def in_pool(spark: SparkSession, pool: str) -> Iterator[None]:
    """Jobs of this thread are the pool's in the `with` block."""
    before = spark.sparkContext.getLocalProperty("spark.scheduler.pool")
    use_pool(spark, pool)
    try:
        yield
    finally:
        use_pool(spark, before)  # type: ignore[arg-type]


def jvm_of(spark: SparkSession) -> subprocess.Popen[bytes]:
    """The process that this one has started for it."""
    jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    assert jvm is not None
    return jvm


def stop_spark(spark: SparkSession) -> None:
    """Stop it, and wait until its JVM is gone."""
    jvm = jvm_of(spark)
    gateway = spark.sparkContext._gateway
    spark.stop()
    # Py4J's finalizers would go on to tell the JVM what is no longer used, and complain.
    gateway._gateway_client.is_connected = False  # type: ignore[union-attr]
    # The JVM ends when its standard input does; who waits for us waits for it, too.
    if jvm.stdin is not None:
        jvm.stdin.close()
    try:
        jvm.wait(timeout=JVM_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()


def class_archive() -> Path:
    """Where compute/warm.py keeps the classes that a JVM begins with."""
    return Path(sys.prefix, "spark-classes.jsa")


def s3a_jars() -> list[Path]:
    """The jars with which Spark reads s3a:// addresses; none where they were not fetched."""
    folder = os.environ.get("TIDEMARK_S3A_JARS") or Path(sys.prefix, "s3a")
    return sorted(Path(folder).glob("*.jar"))


def kafka_jars() -> list[Path]:
    """The jars with which Spark reads Kafka and Avro; none where they were not fetched."""
    folder = os.environ.get("TIDEMARK_KAFKA_JARS") or Path(sys.prefix, "kafka-spark")
    return sorted(Path(folder).glob("*.jar"))


def s3a_settings(blob: str) -> dict[str, str]:
    """What makes s3a:// reach the bucket of an s3:// blob just as persist.s3 does.

    Credentials in this process's environment travel with Spark's jobs, by Spark's own doing.
    """
    parts = urlsplit(blob, allow_fragments=False)
    options = dict(parse_qsl(parts.query))
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    endpoint = options.get("endpoint") or _first_set(*variables)
    region = options.get("region") or _first_set("AWS_REGION", "AWS_DEFAULT_REGION")
    credentials = list(S3A_CREDENTIALS)
    if os.environ.get("AWS_PROFILE") and not os.environ.get("AWS_ACCESS_KEY_ID"):
        credentials = ["org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider"]
    found = {
        "endpoint.region": region or "us-east-1",
        "aws.credentials.provider": ",".join(credentials),
        # A store that does not answer is given up after about 15 seconds, not two minutes.
        "retry.limit": "4",
    }
    if endpoint:
        found |= {"endpoint": endpoint, "path.style.access": "true"}
    return {f"spark.hadoop.fs.s3a.bucket.{parts.netloc}.{k}": v for k, v in found.items()}


def _with_jars(master: str, blob: str | None) -> dict[str, str]:
    """What is not in PySpark: Kafka whenever it is here, S3 when the parts are there.

    Executors elsewhere are sent the jars. Where there are none, they go on the JVM's own class
    path: tasks that load what was sent have been seen to fail when they are the first ones.
    """
    jars, settings = kafka_jars(), {}
    if blob and blob.startswith("s3:"):
        settings = _s3a(blob)
        jars += s3a_jars()
    if not jars:
        return settings
    if master.startswith("local"):
        return {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars)), **settings}
    return {"spark.jars": ",".join(map(str, jars)), **settings}


def _s3a(blob: str) -> dict[str, str]:
    if not s3a_jars():
        raise Unavailable(
            "Spark cannot read S3: its jars are not here",
            hint="run `make s3a`, or name a folder of jars with TIDEMARK_S3A_JARS",
        )
    given = {name: found for name in S3_VARIABLES if (found := os.environ.get(name))}
    # Spark sends keys to the executors' JVMs by itself, but not to their Python workers.
    workers = {f"spark.executorEnv.{name}": value for name, value in given.items()}
    return {**s3a_settings(blob), **workers}


def _first_set(*variables: str) -> str | None:
    return next((found for each in variables if (found := os.environ.get(each))), None)


def _driver_address(master: str) -> dict[str, str]:
    """Under which address executors reach this process: that from which it reaches the master."""
    if master.startswith("local"):
        return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if not master.startswith("spark://") or os.environ.get("SPARK_LOCAL_IP"):
        return {}
    problem = None
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), MASTER_SECONDS) as reached:
                own = reached.getsockname()[0]
                return {"spark.driver.host": f"[{own}]" if ":" in own else own}
        except (OSError, ValueError) as error:
            problem = error
    raise Unavailable(
        f"no Spark master answers at {master}: {problem}",
        hint="start the cluster, or correct the address; it is spark://host:port",
    )


def _log_options() -> str:
    config = Path(__file__).with_name("log4j2.properties").as_uri()
    level = os.environ.get("TIDEMARK_SPARK_LOG", "fatal")
    return f"-Dlog4j2.configurationFile={config} -Dtidemark.spark.log={level}"


def _archive_options() -> str:
    # A JVM that cannot use it would say so on standard output, and go on without.
    off = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
    return f"-XX:SharedArchiveFile={class_archive()} {off}" if class_archive().exists() else ""


def _launch_quietly(conf: SparkConf) -> Any:
    """PySpark's JVM, without the line that Java prints about a module that Spark asks for."""
    read_end, write_end = os.pipe()
    said = os.fdopen(read_end, "rb")
    threading.Thread(target=_pass_on, args=(said,), name="spark-stderr", daemon=True).start()
    try:
        return launch_gateway(conf, {"stderr": write_end})
    finally:
        os.close(write_end)


def _pass_on(said: IO[bytes]) -> None:
    with said:
        for line in said:
            if b"incubator modules: jdk.incubator.vector" not in line:
                os.write(2, line)


def session_for(spark: SparkSession, settings: Mapping[str, str | None]) -> SparkSession:
    """A session of its own on the same context, with `settings`; None is Spark's default."""
    session = spark.newSession()
    for name, value in settings.items():
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)
    return session


def find_java() -> str:
    """Make sure that PySpark finds a Java of at least 17; returns where."""
    home = os.environ.get("JAVA_HOME")
    if home and java_version(Path(home) / "bin" / "java") >= MIN_JAVA:
        return home
    on_path = shutil.which("java")
    if not home and on_path and java_version(Path(on_path)) >= MIN_JAVA:
        return on_path
    recorded = Path(sys.prefix) / "java-home"
    if recorded.is_file():
        os.environ["JAVA_HOME"] = recorded.read_text().strip()
        return os.environ["JAVA_HOME"]
    raise Unavailable(
        f"Spark needs Java {MIN_JAVA} or later and none was found",
        hint="run `make setup`, which brings one, or set JAVA_HOME",
    )


def java_version(java: Path) -> int:
    """The major version that `java -version` prints, 0 if it does not run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except OSError:
        return 0
    words = done.stderr.split('"')
    major = words[1].split(".")[0] if len(words) > 1 else ""
    return int(major) if major.isdigit() else 0
