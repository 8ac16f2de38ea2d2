"""The console in a real browser, on a real server: every page on real data, in both colour schemes,
held to what axe knows of accessibility; no error on the browser's console, no request elsewhere.

`SCREENSHOTS=folder` keeps a picture of each page.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright
from serving import DEADLINE, Serving, eventually

from services import program

WAIT = DEADLINE * 1000
expect.set_options(timeout=WAIT)

QUIET = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run"
).split()

SETUP = (
    "CREATE SOURCE auction FROM LOAD GENERATOR AUCTION (TICK INTERVAL '200ms', SEED 7)"
    " FOR ALL TABLES",
    "CREATE TABLE watched (region text, note text)",
    "INSERT INTO watched VALUES ('west', 'ours'), ('north', 'new')",
    "CREATE TABLE divisors (a int, b int)",
    "INSERT INTO divisors VALUES (1, 0), (4, 2)",
    "CREATE VIEW dear AS SELECT * FROM bids WHERE amount > 10",
    "CREATE MATERIALIZED VIEW bids_by_region AS SELECT u.region, count(*) AS bids, max(b.amount)"
    " AS highest FROM dear b JOIN users u ON b.buyer = u.id GROUP BY u.region",
    "CREATE MATERIALIZED VIEW notes AS SELECT region, count(*) AS n FROM watched GROUP BY region",
    "CREATE MATERIALIZED VIEW ratios AS SELECT a, a / b AS ratio FROM divisors",
    "CREATE INDEX regions ON bids_by_region (region)",
    "CREATE SOURCE posted FROM WEBHOOK BODY FORMAT JSON",
    "CREATE CLUSTER spare (REPLICATION FACTOR 0)",
    "CREATE MATERIALIZED VIEW idle IN CLUSTER spare AS SELECT count(*) AS n FROM watched",
    "COMMENT ON MATERIALIZED VIEW notes IS 'What is noted where'",
    "VERIFY MATERIALIZED VIEW notes",
)


class Served(NamedTuple):
    server: Serving
    browser: Browser
    ids: dict[str, str]
    first_look: str
    """What the page said while there was nothing."""

    def page_of(self, name: str, tab: str = "") -> str:
        return f"#/object/{self.ids[name]}/{tab}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Serving(tmp_path_factory.mktemp("console") / "data")
    try:
        server.start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=program("chromium"), args=QUIET, timeout=WAIT
            )
            page = browser.new_page()
            page.set_default_timeout(WAIT)
            page.goto(server.http)
            expect(page.get_by_text("Nothing here yet")).to_be_visible(timeout=WAIT)
            first_look = page.locator("main").inner_text()
            assert violations(page) == {}
            page.close()
            with server.connect() as connection:
                for sql in SETUP:
                    connection.execute(sql.encode())
                found = connection.execute("SELECT name, id FROM mz_objects").fetchall()
                fresh = "SELECT count(*) FROM mz_internal.mz_hydration_statuses WHERE NOT hydrated"
                eventually("hydration", lambda: connection.execute(fresh).fetchone() == (0,))
            yield Served(server, browser, dict(found), first_look)
            browser.close()
    finally:
        server.destroy()


def violations(page: Page) -> dict[str, str]:
    """What axe finds, and where first."""
    found = Axe().run(page).response["violations"]
    return {each["id"]: each["nodes"][0]["html"] for each in found}


class Watched:
    """A page whose complaints, and requests to others, are noted down."""

    def __init__(self, served: Served, context: BrowserContext):
        self.complaints: list[str] = []
        self._served = served
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT)
        self.page.on(
            "console",
            lambda said: (
                self.complaints.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._requested)

    def _requested(self, request: Request) -> None:
        own = (self._served.server.http, self._served.server.http.replace("http", "ws"))
        if not request.url.startswith(own):
            self.complaints.append(f"asked {request.url}")

    def go(self, where: str) -> Page:
        self.page.goto(f"{self._served.server.http}/{where}")
        return self.page

    def sees(self, *texts: str | re.Pattern[str]) -> None:
        for text in texts:
            expect(self.page.locator("main").get_by_text(text).first).to_be_visible(timeout=WAIT)


@pytest.fixture
def watched(served: Served) -> Iterator[Watched]:
    context = served.browser.new_context(
        viewport={"width": 1366, "height": 820}, reduced_motion="reduce"
    )
    found = Watched(served, context)
    yield found
    context.close()
    assert found.complaints == []


def run_sql(page: Page, sql: str) -> None:
    page.get_by_role("textbox", name="SQL").fill(sql)
    page.keyboard.press("Control+Enter")


def test_nothing_yet_says_how_to_begin(served: Served):
    assert "CREATE MATERIALIZED VIEW" in served.first_look
    assert "Open it in the SQL shell" in served.first_look


def test_every_page_in_both_schemes(served: Served, watched: Watched):
    page = watched.page
    clock = re.compile(r"\d\d:\d\d:\d\d\.\d\d\d")
    pages = {
        "overview": ("#/", "Furthest behind", "bids_by_region", "division by zero in (a / b)"),
        "graph": ("#/graph", "bids_by_region", re.compile(r"\d/s"), re.compile(r"\d % busy")),
        "about": (served.page_of("notes"), "What is noted where", "Last tick", clock, "watched"),
        "source": (served.page_of("auction"), "Messages received", "load generator"),
        "rows": (served.page_of("notes", "rows"), "north", "Watch it change"),
        "plan": (served.page_of("bids_by_region", "plan"), "Reduce", "Maintained incrementally"),
        "errors": (served.page_of("ratios", "errors"), "division by zero in (a / b)"),
        "no-errors": (served.page_of("notes", "errors"), "No errors"),
        "storage": (served.page_of("notes", "storage"), "Readable from (since)", "Compacted to"),
        "verdicts": (served.page_of("notes", "verification"), "verified"),
        "index": (served.page_of("regions"), "In memory"),
        "sql": ("#/sql", "Ask something"),
        "clusters": ("#/clusters", "quickstart", "Spark UI", "ALTER CLUSTER spare SET"),
        "paused": (
            served.page_of("idle", "errors"),
            "Cluster spare has no replicas.",
            "ALTER CLUSTER spare SET (REPLICATION FACTOR = 1)",
            "not readable yet",
        ),
        "verification": ("#/verification", "never verified", "verified", "All verdicts"),
        "no-object": ("#/object/u999", "No such object"),
        "no-page": ("#/nowhere", "No such page"),
    }
    problems, backgrounds = {}, set()
    for name, (where, *texts) in pages.items():
        watched.go(where)
        watched.sees(*texts)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            if folder := os.environ.get("SCREENSHOTS"):
                page.screenshot(path=Path(folder) / f"{name}-{scheme}.png")
            found = violations(page)
            problems |= {f"{name}, {scheme}: {rule}": place for rule, place in found.items()}
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            backgrounds.add((scheme, background))
    assert problems == {}
    assert backgrounds == {("light", "rgb(247, 248, 248)"), ("dark", "rgb(18, 24, 28)")}


def test_frontiers_go_on_while_one_looks(watched: Watched):
    page = watched.go("#/")
    cell = page.locator("tr", has=page.get_by_role("link", name="bids", exact=True)).locator(
        "td.mono"
    )
    before = cell.inner_text()
    expect(cell).not_to_have_text(before, timeout=WAIT)


def test_a_source_that_has_rows_of_its_own_shows_how_far_it_is_behind(
    served: Served, watched: Watched
):
    page = watched.go("#/")
    rows = page.locator("tr", has=page.get_by_role("link", name="posted", exact=True))
    expect(rows.locator(".lag")).to_have_text(re.compile(r"\d m?s"), timeout=WAIT)
    rows = page.locator("tr", has=page.get_by_role("link", name="auction", exact=True))
    expect(rows.locator(".lag")).to_have_count(0)
    page = watched.go(served.page_of("posted"))
    expect(page.locator("main header, main").get_by_text("behind", exact=True)).to_be_visible()
    page = watched.go("#/graph")
    box = page.locator("li", has=page.get_by_text("posted", exact=True))
    expect(box.locator(".lag")).to_have_text(re.compile(r"\d m?s"), timeout=WAIT)


def test_what_reads_fail_with_is_said_once(served: Served, watched: Watched):
    page = watched.go(served.page_of("ratios", "errors"))
    watched.sees("SQLSTATE 22012")
    expect(page.locator("main").get_by_text("division by zero in (a / b)")).to_have_count(1)


def test_an_error_is_said_once_and_only_while_it_is_there(served: Served, watched: Watched):
    with served.server.connect() as connection:
        connection.execute("CREATE TABLE codes (code text)")
        connection.execute("INSERT INTO codes VALUES ('7'), ('" + "f" * 600 + "')")
        connection.execute("CREATE MATERIALIZED VIEW parsed AS SELECT code::int AS n FROM codes")
        connection.execute("CREATE MATERIALIZED VIEW doubled AS SELECT n * 2 AS n FROM parsed")
        connection.execute("CREATE INDEX parsed_n ON parsed (n)")
        found = connection.execute("SELECT name, id FROM mz_objects").fetchall()
        served.ids.update(dict(found))
    page = watched.go("#/")
    page.set_viewport_size({"width": 1366, "height": 768})
    said = page.locator(".attention li").filter(has_text="fffff")
    expect(said).to_have_count(1, timeout=WAIT)
    expect(said.get_by_role("link")).to_have_text(["parsed", "doubled", "parsed_n"], timeout=WAIT)
    assert said.evaluate("line => line.scrollWidth <= line.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    row = page.locator("tr", has=page.get_by_role("link", name="parsed", exact=True))
    expect(row.locator("td").nth(7)).to_have_text("1")
    for name in ("parsed", "doubled", "parsed_n"):
        row = page.locator("tr", has=page.get_by_role("link", name=name, exact=True))
        expect(row.locator(".status")).to_have_text("in error")
    with served.server.connect() as connection:
        connection.execute("DELETE FROM codes WHERE code <> '7'")
    expect(said).to_have_count(0, timeout=WAIT)
    for name in ("parsed", "doubled", "parsed_n"):
        row = page.locator("tr", has=page.get_by_role("link", name=name, exact=True))
        expect(row.locator(".status")).to_have_text("running")
    page = watched.go("#/graph")
    node = page.locator("a.node", has=page.get_by_text("parsed", exact=True))
    expect(node).to_have_class(re.compile("good"), timeout=WAIT)
    watched.go(served.page_of("parsed", "errors"))
    watched.sees(re.compile("No errors"))
    expect(page.locator(".tabs .dot")).to_have_count(0)


def test_spark_shows_its_jobs(served: Served, watched: Watched):
    link = watched.go("#/clusters").get_by_role("link", name="Spark UI")
    address = link.get_attribute("href") or ""
    assert address.startswith("http://127.0.0.1:")
    page = served.browser.new_page()
    page.set_default_timeout(WAIT)
    page.goto(f"{address}/jobs/")
    expect(page.get_by_text("tidemark-quickstart-r1").first).to_be_visible(timeout=WAIT)
    page.close()


def test_results_and_errors_at_their_position(watched: Watched):
    page = watched.go("#/sql")
    run_sql(
        page, "SELECT 'a;b' AS said;\n-- a comment\nSELECT region,\n  nope FROM watched; SELECT 3"
    )
    watched.sees("a;b", 'column "nope" does not exist')
    expect(page.locator(".problem mark")).to_have_text("nope", timeout=WAIT)
    expect(page.locator(".editor mark")).to_have_text("nope")
    box = page.get_by_role("textbox", name="SQL")
    assert box.evaluate("box => box.value.slice(box.selectionStart)").startswith("nope FROM")
    assert page.locator(".result").count() == 2
    watched.sees("The statement after it was not run.")
    run_sql(page, "BEGIN")
    watched.sees("in a transaction")
    run_sql(page, "ROLLBACK; EXPLAIN SELECT count(*) FROM watched WHERE note = 'new'")
    expect(page.locator(".tree .op b").filter(has_text="Filter")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="As text").click()
    watched.sees("Get watched (region, note)")


def test_a_subscription_is_a_table_that_changes(served: Served, watched: Watched):
    page = watched.go(served.page_of("notes", "rows"))
    page.get_by_role("link", name="Watch it change").click()
    box = page.get_by_role("textbox", name="SQL")
    expect(box).to_have_value("SUBSCRIBE tidemark.public.notes")
    rows = page.get_by_role("region", name="Rows now").locator("tbody tr")
    expect(rows).to_have_count(2, timeout=WAIT)
    with served.server.connect() as connection:
        connection.execute("INSERT INTO watched VALUES ('south', 'far'), ('west', 'again')")
        expect(rows).to_have_text(["north1", "south1", "west2"], timeout=WAIT)
        connection.execute("DELETE FROM watched WHERE note IN ('far', 'again')")
        expect(rows).to_have_text(["north1", "west1"], timeout=WAIT)
    page.get_by_role("button", name="As changes").click()
    expect(page.locator("tr.gone").first).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Stop").click()
    watched.sees("stopped")
    run_sql(page, "SELECT 'another session' AS said")
    watched.sees("another session")


def test_escape_stops_wherever_the_focus_is(watched: Watched):
    page = watched.go("#/sql")
    page.get_by_role("textbox", name="SQL").fill("SUBSCRIBE watched")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("region", name="Rows now").click()
    page.keyboard.press("Escape")
    watched.sees("stopped")


def test_a_draft_outlasts_a_look_at_earlier_sql(watched: Watched):
    page = watched.go("#/sql")
    run_sql(page, "SELECT 'earlier' AS said")
    watched.sees("earlier")
    box = page.get_by_role("textbox", name="SQL")
    box.fill("SELECT 'not run yet'")
    page.keyboard.press("Alt+ArrowUp")
    expect(box).to_have_value("SELECT 'earlier' AS said")
    page.keyboard.press("Alt+ArrowDown")
    expect(box).to_have_value("SELECT 'not run yet'")


def test_what_has_no_cluster_is_sorted_last(watched: Watched):
    page = watched.go("#/")
    watched.sees("Furthest behind")
    page.locator("th").get_by_role("button", name="Cluster").click()
    cells = page.get_by_role("region", name="Objects").locator("tbody td:last-child")
    found = cells.all_inner_texts()
    assert found == sorted(found, key=lambda name: (not name, name))
    assert not found[-1]


def test_a_time_of_another_day_says_its_day(watched: Watched):
    page = watched.go("#/")
    shown = page.evaluate(
        "import('/console/format.js').then(({frontier}) => [frontier(1.7e12), frontier(Date.now())])"
    )
    assert shown[0] == "2023-11-14 22:13:20"
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", shown[1])


def test_what_is_late_names_the_first_that_is(watched: Watched):
    page = watched.go("#/")
    page.wait_for_function(
        """async () => {
          const { lateInput } = await import("/console/overview.js");
          const made = [["s", 90e3, []], ["t", 1, []], ["v", 90e3, ["s", "t"]], ["w", 9e3, ["t", "v"]]];
          const objects = new Map(made.map(([id, lag, inputs]) => [id, { id, lag, inputs }]));
          const found = made.map(([id]) => lateInput(objects.get(id), objects)?.id ?? "none");
          return found.join() === "none,none,s,s";
        }"""
    )


def test_names_are_quoted_where_sql_needs_it(watched: Watched):
    page = watched.go("#/")
    names = ["notes", "_1", "Notes", "1st", "join", "values", 'a"b']
    quoting = "import('/console/format.js').then((m) => names.map(m.quoted))"
    shown = page.evaluate(f"(names) => {quoting}", names)
    assert shown == ["notes", "_1", '"Notes"', '"1st"', '"join"', '"values"', '"a""b"']


def test_sql_is_cut_as_the_server_cuts_it(watched: Watched):
    page = watched.go("#/sql")
    for text, *statements in (
        (r"SELECT E'it\'s; x'; SELECT 2", r"SELECT E'it\'s; x'", "SELECT 2"),
        ("/* a /* b; */ c; */ SELECT 1;; SELECT $a$;$a$ -- ;", "SELECT 1", "SELECT $a$;$a$ -- ;"),
        ('SELECT e.c-1/2 AS ";"; -- nothing', 'SELECT e.c-1/2 AS ";"'),
    ):
        cut = "import('/console/statements.js').then((m) => m.statementsOf(text).map((s) => s.sql))"
        assert page.evaluate(f"(text) => {cut}", text) == statements
    for sql, query in {
        'SUBSCRIBE "a b".t ENVELOPE UPSERT (KEY (a)) AS OF 5': 'SELECT * FROM "a b".t',
        "subscribe (SELECT ')' FROM (SELECT 1)) WITH (PROGRESS)": "(SELECT ')' FROM (SELECT 1))",
        "DELETE FROM t": "DELETE FROM t",
    }.items():
        explaining = "import('/console/statements.js').then((m) => m.explaining(sql))"
        found = page.evaluate(f"(sql) => {explaining}", sql)
        assert found == f"EXPLAIN OPTIMIZED PLAN FOR {query}"


def test_numbers_that_no_javascript_number_is(served: Served, watched: Watched):
    with served.server.connect() as connection:
        connection.execute("CREATE TABLE odd (n bigint, x double precision)")
        connection.execute("INSERT INTO odd VALUES (9007199254740993, 'NaN')")
        of_odd = "SELECT id FROM mz_objects WHERE name = 'odd'"
        served.ids["odd"] = (connection.execute(of_odd).fetchone() or ("",))[0]
    page = watched.go(served.page_of("odd", "rows"))
    row = page.get_by_role("region", name="Rows").locator("tbody tr")
    expect(row.locator("td")).to_have_text(["9007199254740993", "NaN"], timeout=WAIT)


def test_numbers_of_a_subscription_are_in_their_order(served: Served, watched: Watched):
    with served.server.connect() as connection:
        connection.execute("CREATE TABLE steps (n numeric(5, 1))")
        connection.execute("INSERT INTO steps VALUES (10), (9.5), (-2), (NULL), (100)")
    page = watched.go("#/sql")
    run_sql(page, "SUBSCRIBE steps")
    rows = page.get_by_role("region", name="Rows now").locator("tbody tr")
    expect(rows).to_have_text(["-2.0", "9.5", "10.0", "100.0", "null"], timeout=WAIT)


def test_digits_in_json_stay_as_they_are(served: Served, watched: Watched):
    with served.server.connect() as connection:
        connection.execute("CREATE TABLE noted (doc jsonb)")
        connection.execute("""INSERT INTO noted VALUES
            ('{"n": 9007199254740993}'), ('{"n": 9007199254740992}'), ('[12345678901234567.8]')""")
    page = watched.go("#/sql?run=1&q=SUBSCRIBE%20noted")
    rows = page.get_by_role("region", name="Rows now").locator("tbody tr")
    shown = ["[12345678901234567.8]", '{"n":9007199254740992}', '{"n":9007199254740993}']
    expect(rows).to_have_text(shown, timeout=WAIT)


def test_a_link_runs_nothing_but_a_look(watched: Watched):
    page = watched.go("#/sql?run=1&q=SUBSCRIBE%20notes%3B")
    expect(page.get_by_role("region", name="Rows now")).to_be_visible()
    for text in ("DELETE FROM watched", "SUBSCRIBE notes; DELETE FROM watched"):
        page = watched.go("#/")
        page = watched.go(f"#/sql?run=1&q={quote(text)}")
        expect(page.get_by_role("textbox", name="SQL")).to_have_value(text)
        expect(page.get_by_text("Ask something")).to_be_visible()
    run_sql(page, "SELECT count(*) > 0 FROM watched")
    expect(page.get_by_role("region", name="Rows 1").locator("td")).to_have_text("true")


def test_what_follows_a_lost_transaction_is_not_run(served: Served, watched: Watched):
    with served.server.connect() as connection:
        connection.execute("CREATE TABLE kept (a int)")
    page = watched.go("#/sql")
    run_sql(
        page, "SET idle_in_transaction_session_timeout = '1s'; BEGIN; INSERT INTO kept VALUES (1)"
    )
    watched.sees("the session has ended: the next statement begins another")
    run_sql(page, "INSERT INTO kept VALUES (2); COMMIT")
    watched.sees("the transaction was rolled back, and what was SET is gone")
    watched.sees("The statement after it was not run.")
    run_sql(page, "SELECT count(*) FROM kept")
    expect(page.get_by_role("region", name="Rows 1").locator("td")).to_have_text("0")


def test_verify_from_the_page(served: Served, watched: Watched):
    page = watched.go(served.page_of("bids_by_region", "verification"))
    watched.sees("Never verified")
    page.get_by_role("button", name="Verify now").click()
    expect(page.locator("tbody .status.good")).to_have_text("verified", timeout=WAIT)


def test_without_a_mouse(served: Served, watched: Watched):
    page = watched.go("#/")
    watched.sees("Furthest behind")
    for keys, title in {"gg": "Dataflow", "gc": "Clusters", "gv": "Verification"}.items():
        for key in keys:
            page.keyboard.press(key)
        expect(page).to_have_title(f"{title} · Tidemark", timeout=WAIT)
    page.keyboard.press("/")
    page.keyboard.type("bids_by")
    page.keyboard.press("Enter")
    expect(page).to_have_title("bids_by_region · Tidemark", timeout=WAIT)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("find an object")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_consoles_own_questions_are_not_kept(served: Served, watched: Watched):
    page = watched.go("#/sql")
    run_sql(page, "SELECT 'by hand' AS said")
    watched.sees("by hand")
    asked = (
        "SELECT application_name, sql FROM mz_internal.mz_recent_activity_log"
        " WHERE application_name LIKE 'tidemark_console%'"
    )
    with served.server.connect() as connection:
        found = dict(connection.execute(asked).fetchall())
    assert found["tidemark_console_shell"]
    assert "mz_objects" not in found.get("tidemark_console", "")


def test_a_server_that_does_not_answer_and_comes_back(served: Served):
    context = served.browser.new_context()
    watched = Watched(served, context)
    page = watched.go("#/")
    watched.sees("Furthest behind")
    context.set_offline(True)
    watched.sees("What is below is no longer current: The server does not answer.")
    expect(page.locator("header .status")).to_have_text("offline")
    again = page.get_by_role("button", name="Try again")
    expect(again).to_be_visible()
    page.get_by_role("link", name="SQL").click()
    run_sql(page, "SELECT 1")
    expect(page.locator(".result .problem-title")).to_have_text("The server does not answer.")
    context.set_offline(False)
    # At once, if it is there: the page asks again by itself, too, and then the button is gone.
    again.evaluate_all("buttons => buttons.forEach((each) => each.click())")
    expect(page.locator("header .status")).to_have_text("live", timeout=WAIT)
    context.close()


def test_a_server_that_is_silent_and_one_that_is_none(served: Served):
    context = served.browser.new_context()
    watched = Watched(served, context)
    page = watched.go("#/")
    watched.sees("Furthest behind")
    page.route("**/api/sql*", lambda route: None)  # It is never answered, as if it hung.
    watched.sees("The server has not answered for 10 seconds.")
    expect(page.locator("header .status")).to_have_text("offline")
    page.unroute("**/api/sql*")
    page.route("**/api/sql*", lambda route: route.fulfill(status=502, body="<h1>Bad Gateway"))
    page.get_by_role("button", name="Try again").click()
    watched.sees("What answers is not the server (HTTP 502)")
    page.unroute("**/api/sql*")
    expect(page.locator("header .status")).to_have_text("live", timeout=WAIT)
    context.close()


def test_a_query_that_waits_for_a_replica_says_so(served: Served, watched: Watched):
    page = watched.go("#/sql")
    with served.server.connect() as connection:
        asked = "SELECT pid FROM mz_internal.mz_cluster_replica_statuses WHERE pid IS NOT NULL"
        (pid,) = connection.execute(asked).fetchone() or (0,)
        os.kill(pid, signal.SIGKILL)
        run_sql(page, "SELECT count(*) AS found FROM bids WHERE amount * 2 > 1")
        expect(page.locator(".bar [role=status]")).to_contain_text("no replica is online yet")
        expect(page.get_by_role("columnheader", name="found")).to_be_visible(timeout=WAIT)
        fresh = "SELECT count(*) FROM mz_internal.mz_hydration_statuses WHERE NOT hydrated"
        eventually("hydration", lambda: connection.execute(fresh).fetchone() == (0,))


def test_sign_in(served: Served):
    context = served.browser.new_context()
    watched = Watched(served, context)
    page = watched.go("#/clusters")
    watched.sees("quickstart")
    with served.server.connect() as connection:
        connection.execute("ALTER ROLE tidemark PASSWORD 'open sesame'")
        try:
            watched.sees("This server asks for a password.")
            assert violations(page) == {}
            page.get_by_label("Password").fill("wrong")
            page.get_by_role("button", name="Sign in").click()
            watched.sees("password authentication failed")
            page.get_by_label("Password").fill("open sesame")
            page.get_by_role("button", name="Sign in").click()
            watched.sees("quickstart")
            page.reload()
            watched.sees("quickstart")
            page.goto(f"{served.server.http}/#/sql")
            run_sql(page, "SELECT current_user AS me")
            expect(page.get_by_role("region", name="Rows 1")).to_contain_text("tidemark")
            page.get_by_role("button", name="Sign out").click()
            watched.sees("This server asks for a password.")
        finally:
            connection.execute("ALTER ROLE tidemark PASSWORD NULL")
    assert all("401" in each for each in watched.complaints), watched.complaints
    context.close()
