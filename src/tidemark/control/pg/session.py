"""What a catalog query may ask of the session that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from tidemark.compute.expr import Lit
from tidemark.control.pg.casts import cast
from tidemark.control.pg.roles import ASKED
from tidemark.control.pg.settings import pg_settings
from tidemark.control.roles import Role
from tidemark.errors import SqlError, Unsupported
from tidemark.types import BIGINT, TEXT

if TYPE_CHECKING:
    from tidemark.control.names import Names

Answer = Callable[..., exp.Expr]


class Asking:
    """`answers` are functions that are replaced by what they return; `own` are the names of those
    that only a catalog query has. What `set_config` sets is set when the query runs."""

    def __init__(
        self,
        values: Mapping[str, Lit],
        settings: Mapping[str, str],
        set_: Callable[..., None],
        names: Names,
        *,
        now: int,
        started_ms: int,
        pid: int,
        role: Role,
    ):
        self.database = names.database
        self.path = names.path
        self.system = names.system
        self._settings = dict(settings)
        self._set = set_
        self._changes: list[tuple[str, str, bool]] = []
        self.settings = pg_settings(self._settings)
        own: dict[str, Answer] = {
            "current_role": lambda: _literal(values["current_user"]),
            "current_schemas": self._schemas,
            "current_setting": self._setting,
            "set_config": self._set_config,
            "pg_postmaster_start_time": lambda: _moment(started_ms),
            "pg_conf_load_time": lambda: _moment(started_ms),
            "pg_backend_pid": lambda: exp.Literal.number(pid),
            "inet_server_addr": exp.null,
            "inet_server_port": exp.null,
            "inet_client_addr": exp.null,
            "inet_client_port": exp.null,
            "mz_now": lambda: _literal(Lit(str(now), BIGINT)),
        }
        own |= {name: _asked_of(name, role.name, count) for name, count in ASKED.items()}
        self.own = own.keys()
        self.answers: dict[str, Answer] = own | {
            name: lambda value=value: _literal(value) for name, value in values.items()
        }

    def take_effect(self) -> None:
        for name, value, local in self._changes:
            self._set(name, value, local=local)

    def _schemas(self, implicit: exp.Expr) -> exp.Expr:
        implied = _said(implicit) == "true" and "pg_catalog" not in self.path
        names = [*(["pg_catalog"] if implied else []), *self.path]
        array = exp.Array(expressions=[_text(name) for name in names])
        # DuckDB would not know what an empty one is a list of.
        return cast(array, "text", is_array=True)

    def _setting(self, name: exp.Expr, missing_ok: exp.Expr | None = None) -> exp.Expr:
        if not isinstance(_bare(name), exp.Literal | exp.Null):
            cases = [(_text(key), _text(value)) for key, value in self._settings.items()]
            ifs = [exp.If(this=key, true=value) for key, value in cases]
            return exp.Case(this=name.copy(), ifs=ifs)
        if missing_ok is not None and _said(missing_ok) == "true":
            found = self._settings.get(_said(name).lower())
            return exp.null() if found is None else _text(found)
        return exp.null() if isinstance(_bare(name), exp.Null) else _text(self._named(_said(name)))

    def _named(self, name: str) -> str:
        found = self._settings.get(name.lower())
        if found is None:
            raise SqlError(f'unrecognized configuration parameter "{name}"', sqlstate="42704")
        return found

    def _set_config(self, name: exp.Expr, value: exp.Expr, local: exp.Expr) -> exp.Expr:
        key, wanted = _said(name), _said(value)
        if self._named(key) != wanted:
            self._changes.append((key, wanted, _said(local) == "true"))
        return _text(wanted)


def _asked_of(name: str, role: str, count: int) -> Answer:
    """The function with the session's role in front, where the query names none."""

    def answer(*given: exp.Expr) -> exp.Expr:
        first = [_text(role)] if len(given) < count else []
        return exp.Anonymous(this=name, expressions=[*first, *given])

    return answer


def _literal(value: Lit) -> exp.Expr:
    if value.value is None:
        return exp.null()
    literal = exp.Literal.string(value.value)
    if value.type == TEXT:
        return literal
    return exp.Cast(this=literal, to=exp.DataType.build(str(value.type), dialect="postgres"))


def _moment(ms: int) -> exp.Expr:
    text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ")
    return exp.Cast(
        this=exp.Literal.string(text), to=exp.DataType.build("timestamptz", dialect="postgres")
    )


def _text(value: str) -> exp.Expr:
    return exp.Literal.string(value)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    return node


def _said(node: exp.Expr) -> str:
    """The text of a literal."""
    node = _bare(node)
    if isinstance(node, exp.Boolean):
        return "true" if node.this else "false"
    if isinstance(node, exp.Literal):
        return {"t": "true", "f": "false"}.get(node.name, node.name)
    if isinstance(node, exp.Null):
        return ""
    raise Unsupported("this function takes nothing but constants here")
