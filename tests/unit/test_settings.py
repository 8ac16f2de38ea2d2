"""Settings: one list for options, variables, files and documentation; errors that say what is near."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from tidemark.cli import app
from tidemark.errors import InvalidUsage
from tidemark.settings import FIELDS, INHERITED, exported, masked, misspelt, resolve
from tidemark.tools.location import locate

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def written(folder: Path, text: str) -> Path:
    path = folder / "tidemark.toml"
    path.write_text(text)
    return path


def test_an_option_wins_over_the_environment_that_over_the_file_and_that_over_the_default(
    tmp_path: Path,
):
    file = written(tmp_path, 'listen = "a:1"\nhttp = "a:2"\nregion = "file"\n')
    environment = {"TIDEMARK_HTTP": "a:3", "TIDEMARK_REGION": "variable"}
    found = resolve({"region": "option"}, file=file, environment=environment)
    told = found.settings
    assert (told.region, told.http, told.listen, told.tls) == ("option", "a:3", "a:1", "allow")
    origins = {name: found.given[name].origin for name in ("region", "http", "listen", "tls")}
    assert list(origins.values()) == ["--region", "TIDEMARK_HTTP", str(file), "default"]


def test_the_file_may_be_named_by_a_variable_and_its_paths_are_relative_to_it(tmp_path: Path):
    file = written(tmp_path, 'data = "shop"\nsecrets-key = "/etc/key"\n')
    told = resolve(environment={"TIDEMARK_CONFIG": str(file)}).settings
    assert told.data == tmp_path / "shop"
    assert told.secrets_key == Path("/etc/key")


def test_flags_and_numbers_of_the_environment_are_read_as_such():
    told = resolve(environment={"TIDEMARK_LOG_STATEMENTS": "true", "TIDEMARK_HTTP": "a:0"})
    assert told.settings.log_statements is True
    assert told.settings.http == "a:0"
    assert resolve(environment={"TIDEMARK_HTTP": ""}).settings.http == "127.0.0.1:6876"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no_http = true", "there is no setting 'no_http' (is no-http meant?)"),
        ("quux = 1", "there is no setting 'quux' (there are: data, listen, http,"),
        ('no-http = "true"', "no-http takes true or false, not 'true' (write it without"),
        ("http = 6876", "http takes host:port, as in 127.0.0.1:6876, not '6876'"),
        ('tls = "requier"', "tls takes allow or require, not 'requier' (is require meant?)"),
        ("[listen]\nport = 1", "settings have no sections"),
        ('[server]\nlisten = "a:1"', "settings have no sections"),
        ('listen = "a:65536"', "listen takes host:port, as in 127.0.0.1:6875, not 'a:65536'"),
        ('http = "a:99999"', "http takes host:port, as in 127.0.0.1:6876, not 'a:99999'"),
        ("standby = true", "give --standby on the command line"),
        ('tls = "require"', "TLS takes both a certificate and its key"),
        ('passwords = "nowhere"', "nowhere cannot be read: it is not there"),
        ('s3a-jars = "tidemark.toml"', "cannot be read: it is something else"),
        ('consensus = "postgers://a"', "consensus takes sqlite:///some/file or postgres://"),
        ("data", "it is TOML: a line is"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_what_is_right(tmp_path: Path, text: str, said: str):
    file = written(tmp_path, text)
    with pytest.raises(InvalidUsage) as error:
        resolve(file=file, environment={})
    assert str(error.value).startswith(str(file))
    assert said in str(error.value)


def test_a_file_without_data_is_right_only_if_a_variable_says_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = written(tmp_path, 'http = "a:0"\n')
    monkeypatch.delenv("TIDEMARK_DATA", raising=False)
    done = CliRunner().invoke(app, ["config", "check", str(file)])
    assert done.exit_code == 1
    assert "where are the data?" in done.stderr
    monkeypatch.setenv("TIDEMARK_DATA", str(tmp_path))
    assert CliRunner().invoke(app, ["config", "check", str(file)]).exit_code == 0


def test_a_file_that_is_not_there_and_what_is_near_it(tmp_path: Path):
    written(tmp_path, "")
    with pytest.raises(InvalidUsage, match=r"near it are: tidemark\.toml"):
        resolve(file=tmp_path / "tidmark.toml", environment={})


def test_a_wrong_value_of_a_variable_names_the_variable_and_shows_no_password():
    with pytest.raises(InvalidUsage) as error:
        resolve(environment={"TIDEMARK_CONSENSUS": "mysql://u:geheim@h/db"})
    assert "TIDEMARK_CONSENSUS: consensus takes" in str(error.value)
    assert "geheim" not in str(error.value)
    assert masked("postgres://u:geheim@h:1/db?schema=s") == "postgres://u:***@h:1/db?schema=s"
    assert masked("postgres://h/db?user=u&password=geheim") == "postgres://h/db?user=u&password=***"


def test_variables_that_are_nearly_a_settings_are_told_and_others_left_alone():
    environment = {"TIDEMARK_HTPP": "1", "TIDEMARK_TEST_SERVER": "x", "TIDEMARK_LISTEN": "a:1"}
    assert misspelt(environment) == [
        "TIDEMARK_HTPP is no setting and is not looked at; is TIDEMARK_HTTP meant?"
    ]


def test_replicas_inherit_what_a_file_says(tmp_path: Path):
    file = written(tmp_path, 'driver-memory = "4g"\nlog-format = "json"\nlisten = "a:1"\n')
    found = exported(resolve(file=file, environment={}))
    assert found == {"TIDEMARK_DRIVER_MEMORY": "4g", "TIDEMARK_LOG_FORMAT": "json"}


def test_all_mistakes_of_a_file_are_said_at_once(tmp_path: Path):
    file = written(tmp_path, 'lissten = "h:1"\nno-http = "true"\ntls = "allow"\n')
    with pytest.raises(InvalidUsage) as caught:
        resolve({}, file=file, environment={})
    first, second = caught.value.message.splitlines()
    assert "no setting 'lissten' (is listen meant?)" in first
    assert "no-http takes true or false, not 'true' (write it without" in second


def test_tools_take_the_stores_of_the_settings_unless_they_are_told_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "shop").mkdir()
    file = written(tmp_path, 'data = "shop"\nconsensus = "postgres://h/db"\n')
    monkeypatch.setenv("TIDEMARK_CONFIG", str(file))
    assert locate(None, None, None) == (f"file://{tmp_path}/shop/blob", "postgres://h/db")
    assert locate(tmp_path, None, None).consensus == f"sqlite://{tmp_path}/consensus.db"


def test_every_setting_is_an_option_or_is_inherited():
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    options = {
        option.removeprefix("--")
        for parameter in group.commands["serve"].params
        for option in parameter.opts
    }
    assert options - set(FIELDS) == {"config", "standby"}
    assert set(FIELDS) - options <= set(INHERITED)


def test_the_documentation_is_the_list():
    rows = "".join(
        f"| `{name}` | `{field.variable}` | {_cell(field.takes)} |"
        f" {f'`{masked(field.default)}`' if field.default is not None else ''} |"
        f" {_cell(field.help)} |\n"
        for name, field in FIELDS.items()
    )
    table = "| setting | variable | takes | default | |\n|---|---|---|---|---|\n" + rows
    page = PAGE.read_text()
    if os.environ.get("REWRITE"):
        start = page.index("| setting |")
        page = page[:start] + table + page[page.index("\n\n", start) + 1 :]
        PAGE.write_text(page)
    assert table in page


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
