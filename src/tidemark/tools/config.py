"""`tidemark config`: is a configuration file right, and what holds, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidemark.settings import FIELDS, data_folder, masked, misspelt, read_file, resolve
from tidemark.tools.output import console, print_json, print_table, reporting, warn

app = typer.Typer(
    help="Look at the settings of a server: option, environment, file or default.",
    no_args_is_help=True,
)

Config = Annotated[
    Path | None,
    typer.Option(help="A TOML file of settings; else the one that TIDEMARK_CONFIG names, if any."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead.")]


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The file to look at.")]) -> None:
    """Whether a server could be started with this file, together with the environment as it is."""
    with reporting():
        said = read_file(file)
        data_folder(resolve(file=file).settings)
        for line in misspelt():
            warn(line)
        count = "1 setting, and it is" if len(said) == 1 else f"{len(said)} settings, all of them"
        console().print(f"{file}: {count} right", markup=False)


@app.command()
def show(config: Config = None, json: Json = False) -> None:
    """Every setting as `serve` would have it, and where it comes from; passwords are masked."""
    with reporting():
        resolved = resolve(file=config)
        rows = [
            {
                "name": name,
                "value": None if given.value is None else masked(given.value),
                "origin": given.origin,
                "variable": FIELDS[name].variable,
            }
            for name, given in resolved.given.items()
        ]
        for line in misspelt():
            warn(line)
        if json:
            print_json({"settings": rows, "file": resolved.file and str(resolved.file)})
            return
        columns = ("setting", "value", "from", "variable")
        print_table(columns, [tuple(row.values()) for row in rows])
