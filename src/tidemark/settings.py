"""What a server is told, by its command line, the environment or a file, under the same names.

    tidemark serve --http 127.0.0.1:7000  the option, which wins over
    TIDEMARK_HTTP=127.0.0.1:7000          the environment, which wins over
    http = "127.0.0.1:7000"               the file that --config or TIDEMARK_CONFIG names, over
    6876                                  the default

`Settings` is the one list. The options of `tidemark serve` take their help and their defaults from
it, and docs/configuration.md is its table. A name that is not in it, or a value that does not fit,
is an error that says where it was found, what was given, what is allowed, and what is near. Paths
in a file are relative to that file.

Not here: credentials of stores, which come as everyone's tools want them (AWS_…, PGPASSFILE), and
what is said once and not kept, such as --standby.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from tidemark.errors import InvalidUsage

PREFIX = "TIDEMARK_"
CONFIG = "TIDEMARK_CONFIG"

_OTHERS = (CONFIG, "TIDEMARK_FAILPOINT", "TIDEMARK_KAFKA_BROKER_JARS", "TIDEMARK_PIPELINES")
"""Variables that are no settings of a server."""

_NO_SECTIONS = "settings have no sections: one `name = value` on a line of its own"

ALIKE = 0.75
"""How near a variable's name is to a setting's if it was probably meant to be that."""

_SECRET = re.compile(r"(?<=://)([^/@:]*):([^@/]*)(?=@)")
_SECRET_OPTION = re.compile(r"(?i)([?&](?:password|sslpassword|secret[a-z_]*|token)=)[^&]*")

_PORT = r"(?:\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"


def _is(help: str, takes: str, **bounds: Any) -> Meta:
    return Meta(description=help, extra={"takes": takes}, **bounds)


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Everything that can be set; a field's name, with dashes, is its name everywhere."""

    data: (
        Annotated[Path, _is("Folder that holds everything; created if missing.", "a path")] | None
    ) = None
    listen: Annotated[
        str,
        _is(
            "host:port for PostgreSQL clients.",
            "host:port, as in 127.0.0.1:6875",
            pattern=rf"^.+:{_PORT}$",
        ),
    ] = "127.0.0.1:6875"
    http: Annotated[
        str,
        _is(
            "host:port for HTTP and the console; port 0 is any.",
            "host:port, as in 127.0.0.1:6876",
            pattern=rf"^.+:{_PORT}$",
        ),
    ] = "127.0.0.1:6876"
    no_http: Annotated[bool, _is("Do not listen for HTTP.", "true or false")] = False
    blob: (
        Annotated[
            str,
            _is(
                "Blob URI; default: below --data.",
                "file:///some/folder or s3://bucket/prefix?endpoint=…&region=…",
                pattern=r"^(file|s3|mem)://",
            ),
        ]
        | None
    ) = None
    consensus: (
        Annotated[
            str,
            _is(
                "Consensus URI; default: below --data.",
                "sqlite:///some/file or postgres://user@host:port/database?schema=…",
                pattern=r"^(sqlite|postgres|postgresql|mem)://",
            ),
        ]
        | None
    ) = None
    spark_master: Annotated[
        str,
        _is(
            "Spark master of the clusters that name no other.",
            "local[*], local[N] or spark://host:port",
            pattern=r"^(local(\[.+\])?|local-cluster\[.+\]|spark://.+)$",
        ),
    ] = "local[*]"
    driver_memory: Annotated[
        str,
        _is(
            "Heap of a replica's JVM, where its cluster says nothing else.",
            "a number with k, m, g or t, as in 2g",
            pattern=r"(?i)^\d+[kmgt]b?$",
        ),
    ] = "2g"
    java_options: (
        Annotated[
            str, _is("More options of a replica's JVM, last of all.", "words as in -XX:+UseZGC")
        ]
        | None
    ) = None
    index_memory: Annotated[
        str,
        _is(
            "What all indexes of a replica may hold in memory of its own.",
            "a number with kB, MB or GB, as in 256MB",
            pattern=r"(?i)^\d+\s*(b|kb|mb|gb|tb)?$",
        ),
    ] = "256MB"
    secrets_key: (
        Annotated[
            Path,
            _is(
                "The key that secrets are encrypted with, made if it is not there;"
                " default: ~/.config/tidemark/secrets.key.",
                "a path",
            ),
        ]
        | None
    ) = None
    passwords: (
        Annotated[
            Path,
            _is(
                "Who may log in: lines as `tidemark password` prints. Else: everybody.",
                "a file that is there",
            ),
        ]
        | None
    ) = None
    tls_cert: (
        Annotated[
            Path,
            _is("TLS certificate (PEM), with its chain if it has one.", "a file that is there"),
        ]
        | None
    ) = None
    tls_key: Annotated[Path, _is("Its key (PEM).", "a file that is there")] | None = None
    tls: Annotated[
        Literal["allow", "require"],
        _is("Whether clients may, or must, use TLS.", "allow or require"),
    ] = "allow"
    log_statements: Annotated[
        bool, _is("A line of the log for each statement.", "true or false")
    ] = False
    log_format: Annotated[Literal["text", "json"], _is("Lines of the log.", "text or json")] = (
        "text"
    )
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _is("What is worth a line.", "debug, info, warning or error"),
    ] = "info"
    spark_log: Annotated[
        Literal["off", "fatal", "error", "warn", "info", "debug"],
        _is(
            "What Spark's JVM writes to a replica's log.", "off, fatal, error, warn, info or debug"
        ),
    ] = "fatal"
    spark_ui: (
        Annotated[
            Literal["on", "off"],
            _is(
                "Whether replicas show their Spark jobs on ports of this machine. Default: on, if"
                " Spark is local and passwords are not asked for.",
                "on or off",
            ),
        ]
        | None
    ) = None
    s3a_jars: (
        Annotated[
            Path,
            _is(
                "Jars with which Spark reads S3; default: those of `make s3a`.",
                "a folder that is there",
            ),
        ]
        | None
    ) = None
    kafka_jars: (
        Annotated[
            Path,
            _is(
                "Jars of Spark's Kafka connector; default: those of `make kafka`.",
                "a folder that is there",
            ),
        ]
        | None
    ) = None
    account: (
        Annotated[
            str,
            _is("Whose data these are; kept with them. Default: as kept, or tidemark.", "a name"),
        ]
        | None
    ) = None
    region: (
        Annotated[
            str,
            _is("What region they are in; kept with them. Default: as kept, or local.", "a name"),
        ]
        | None
    ) = None


INHERITED = (
    "driver-memory java-options index-memory log-format log-level spark-log spark-ui s3a-jars"
    " kafka-jars"
).split()
"""What replicas read from the environment that they inherit; the server puts it there."""

_FILES = ("passwords", "tls-cert", "tls-key")
_FOLDERS = ("s3a-jars", "kafka-jars")


class Field(NamedTuple):
    """One setting: what it is called, what it is for, what it takes."""

    name: str
    attribute: str
    type: Any
    default: Any
    help: str
    takes: str

    @property
    def variable(self) -> str:
        return PREFIX + self.attribute.upper()

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes, if there are only a few."""
        return tuple(getattr(self.type.__origin__, "__args__", ()))


def _fields() -> dict[str, Field]:
    found = {}
    for field in msgspec.structs.fields(Settings):
        choices = (field.type, *getattr(field.type, "__args__", ()))
        type_ = next(each for each in choices if hasattr(each, "__metadata__"))
        meta = type_.__metadata__[0]
        found[field.encode_name] = Field(
            field.encode_name,
            field.name,
            type_,
            field.default,
            meta.description,
            meta.extra["takes"],
        )
    return found


FIELDS = _fields()


class Given(NamedTuple):
    """A value and where it was found: `--listen`, `TIDEMARK_LISTEN`, `tidemark.toml`, `default`."""

    value: Any
    origin: str


class Resolved(NamedTuple):
    settings: Settings
    given: dict[str, Given]
    """By name, of every setting."""
    file: Path | None = None


def resolve(
    options: Mapping[str, Any] | None = None,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Resolved:
    """What holds, of options (by attribute; None is not said), environment, file and defaults."""
    environment = os.environ if environment is None else environment
    if file is None and environment.get(CONFIG):
        file = Path(environment[CONFIG])
    given = {name: Given(field.default, "default") for name, field in FIELDS.items()}
    if file is not None:
        given |= read_file(file)
    for name, field in FIELDS.items():
        if environment.get(field.variable):
            said, origin = environment[field.variable], field.variable
            given[name] = Given(_converted(field, said, origin, strict=False), origin)
        said = (options or {}).get(field.attribute)
        if said is not None:
            origin = f"--{name}"
            given[name] = Given(_converted(field, said, origin, strict=False), origin)
    _check_together(given)
    settings = Settings(**{FIELDS[name].attribute: each.value for name, each in given.items()})
    return Resolved(settings, given, file)


def data_folder(told: Settings) -> Path:
    """What a server cannot do without."""
    if told.data is None:
        raise InvalidUsage(
            "where are the data?",
            hint='give --data DIR, TIDEMARK_DATA=DIR, or `data = "DIR"` in the file of --config',
        )
    return told.data


def read_file(path: Path) -> dict[str, Given]:
    """What a configuration file says, if every name and value in it is one that there is."""
    try:
        found = tomllib.loads(path.read_text())
    except FileNotFoundError:
        near = _near_files(path)
        hint = f"near it are: {', '.join(near)}" if near else "name a TOML file that is there"
        raise InvalidUsage(f"there is no configuration file {path}", hint=hint) from None
    except OSError as error:
        raise InvalidUsage(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidUsage(f"{path} is not text in UTF-8: {error}") from error
    except tomllib.TOMLDecodeError as error:
        hint = 'it is TOML: a line is `no-http = true` or `data = "folder"`'
        raise InvalidUsage(f"{path}: {error}", hint=hint) from error
    given, wrong = {}, []
    for name, said in found.items():
        try:
            given[name] = Given(_of_file(path, name, said), str(path))
        except InvalidUsage as error:
            wrong.append(error)
    if len(wrong) > 1:
        lines = [f"{each.message} ({each.hint})" if each.hint else each.message for each in wrong]
        raise InvalidUsage("\n".join(lines))
    if wrong:
        raise wrong[0]
    return given


def _of_file(path: Path, name: str, said: Any) -> Any:
    if name not in FIELDS:
        raise _unknown(path, name, said)
    value = _converted(FIELDS[name], said, str(path), strict=True)
    if isinstance(value, Path):
        return path.absolute().parent / value.expanduser()
    return value


def misspelt(environment: Mapping[str, str] | None = None) -> list[str]:
    """Of the variables that no setting has, those that were probably meant for one, as a line."""
    environment = os.environ if environment is None else environment
    names = [field.variable.removeprefix(PREFIX) for field in FIELDS.values()]
    others = {variable for variable in environment if variable.startswith(PREFIX)}
    lines = []
    for variable in sorted(others.difference(_OTHERS, (PREFIX + name for name in names))):
        near = difflib.get_close_matches(variable.removeprefix(PREFIX), names, 1, ALIKE)
        if near:
            lines.append(
                f"{variable} is no setting and is not looked at; is {PREFIX}{near[0]} meant?"
            )
    return lines


def exported(resolved: Resolved) -> dict[str, str]:
    """What the server's environment has to say for replicas to do as it was told."""
    return {
        FIELDS[name].variable: str(resolved.given[name].value)
        for name in INHERITED
        if resolved.given[name].origin != "default"
    }


def masked(value: Any) -> str:
    """A value as it may be shown: without the passwords in addresses."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return _SECRET_OPTION.sub(r"\1***", _SECRET.sub(r"\1:***", str(value)))


def _converted(field: Field, said: Any, origin: str, *, strict: bool) -> Any:
    try:
        return msgspec.convert(said, field.type, strict=strict, dec_hook=_path)
    except (msgspec.ValidationError, NotImplementedError, TypeError):
        raise InvalidUsage(
            f"{origin}: {field.name} takes {field.takes}, not {masked(said)!r}",
            hint=_hint(field, said, strict),
        ) from None


def _path(kind: type, said: Any) -> Path:
    if kind is not Path or not isinstance(said, str | Path) or not str(said):
        raise TypeError
    return Path(said)


def _hint(field: Field, said: Any, typed: bool) -> str | None:
    if isinstance(said, dict):
        return _NO_SECTIONS
    near = difflib.get_close_matches(str(said), field.choices, 1, 0.5)
    if near:
        return f"is {near[0]} meant?"
    if typed and isinstance(said, str) and isinstance(field.default, bool):
        return "write it without quotes"
    return None


def _check_together(given: Mapping[str, Given]) -> None:
    for name in _FILES + _FOLDERS:
        value, origin = given[name]
        fits = Path.is_dir if name in _FOLDERS else Path.is_file
        if value is not None and not fits(value):
            why = "it is something else" if value.exists() else "it is not there"
            raise InvalidUsage(
                f"{origin}: {name} takes {FIELDS[name].takes}; {value} cannot be read: {why}"
            )
    cert, key, tls = (given[name] for name in ("tls-cert", "tls-key", "tls"))
    if (cert.value is None or key.value is None) and (cert.value or key.value):
        raise _half(cert if cert.value else key)
    if tls.value == "require" and cert.value is None:
        raise _half(tls)


def _half(said: Given) -> InvalidUsage:
    return InvalidUsage(
        f"{said.origin}: TLS takes both a certificate and its key",
        hint="give tls-cert and tls-key",
    )


def _unknown(path: Path, name: str, said: Any) -> InvalidUsage:
    if name == "standby":
        return InvalidUsage(
            f"{path}: standby is not a setting, as it is said of one start",
            hint="give --standby on the command line",
        )
    near = difflib.get_close_matches(name.replace("_", "-"), FIELDS, 1, 0.5)
    hint = f"is {near[0]} meant?" if near else f"there are: {', '.join(FIELDS)}"
    if isinstance(said, dict):
        hint = _NO_SECTIONS
    return InvalidUsage(f"{path}: there is no setting {name!r}", hint=hint)


def _near_files(path: Path) -> list[str]:
    try:
        files = [each.name for each in path.parent.iterdir() if each.suffix == ".toml"]
    except OSError:
        return []
    return difflib.get_close_matches(path.name, files, 3, 0.3)
