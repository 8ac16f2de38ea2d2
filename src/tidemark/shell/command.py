"""`tidemark sql`, from its options to its exit code.

0: everything went well. 1: a statement was refused; what follows it was not run. 2: no server, or
options that make no sense. At a prompt it is always 0.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from tidemark.shell.formats import Format

Target = Annotated[
    str | None,
    typer.Argument(help="postgresql://user@host:port/database, host=… port=…, or a database."),
]


def sql(
    target: Target = None,
    host: Annotated[str | None, typer.Option("--host", "-h", help="Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option("--port", "-p", help="Default: 6875.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-U", help="Default: tidemark.")] = None,
    database: Annotated[
        str | None, typer.Option("--database", "-d", help="Default: tidemark.")
    ] = None,
    password: Annotated[
        bool, typer.Option("--password", "-W", help="Ask for the password before connecting.")
    ] = False,
    sslmode: Annotated[
        str | None, typer.Option(help="disable, prefer, require, verify-ca or verify-full.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A session setting: cluster=c.")
    ] = None,
    command: Annotated[
        list[str] | None, typer.Option("--command", "-c", help="Run this, then end.")
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option("--file", "-f", help="Run this file; - is stdin.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Rows as CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Rows as JSON, one per line.")] = False,
    expanded: Annotated[
        bool, typer.Option("--expanded", "-x", help="A line for each column.")
    ] = False,
    tuples_only: Annotated[
        bool, typer.Option("--tuples-only", "-t", help="Rows alone, no names and counts.")
    ] = False,
) -> None:
    """Ask a server, at a prompt or from a script; \\? at the prompt lists its commands."""
    from tidemark.client import Database, connect
    from tidemark.errors import InvalidUsage, TidemarkError
    from tidemark.shell.output import Output, print_error, print_notice
    from tidemark.shell.script import Reader
    from tidemark.shell.shell import Failed, Quit, Shell

    def opened(secret: str | None) -> Database:
        is_dsn = target is not None and ("=" in target or "://" in target)
        return connect(
            target if is_dsn else None,
            host=host,
            port=port,
            user=user,
            database=database or (None if is_dsn else target),
            password=secret,
            sslmode=sslmode,
            settings=dict(_pair(each) for each in setting or ()),
            fallback_application_name="tidemark-sql",
            on_notice=print_notice,
        )

    if csv and json:
        raise typer.BadParameter("--csv and --json exclude each other")
    format_ = Format.CSV if csv else Format.JSON if json else Format.ALIGNED
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    interactive = not command and not file and at_terminal
    try:
        db = opened(_ask() if password else None)
    except TidemarkError as error:
        if not (_wants_password(error) and sys.stdin.isatty() and not password):
            print_error(error)
            sys.exit(2)
        try:
            db = opened(_ask())
        except TidemarkError as again:
            print_error(again)
            sys.exit(2)
    output = Output(format_, tuples_only=tuples_only)
    output.expanded = expanded
    shell = Shell(db, output, interactive=interactive)
    try:
        with db:
            if interactive:
                from tidemark.shell.prompt import run_prompt

                run_prompt(shell, _greeting(db))
                return
            for text in command or ():
                reader = Reader()
                for item in [*reader.feed(text + "\n"), *reader.finish()]:
                    shell.run(item)
            for path in file or ([] if command else ["-"]):
                if path == "-":
                    shell.run_lines(sys.stdin)
                else:
                    shell.run_file(path)
    except Quit:
        pass
    except Failed as failed:
        failed.show()
        sys.exit(2 if isinstance(failed.error, InvalidUsage) and not failed.sql else 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Who reads has enough, as `head` does; nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _pair(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals:
        raise typer.BadParameter(f"--set takes name=value, not {setting!r}")
    return name, value


def _ask() -> str:
    return typer.prompt("Password", hide_input=True, err=True)


def _wants_password(error: Exception) -> bool:
    return "password" in str(error)


def _greeting(db) -> str:
    version = db.connection.info.parameter_status("server_version") or "?"
    return (
        f"tidemark sql, server {version}\n\\? lists commands, \\q leaves; a statement ends with ;"
    )
