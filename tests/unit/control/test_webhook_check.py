"""CHECKs of webhooks: signatures as services send them, what SQL means in one, what is refused."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac

import msgspec
import pytest

from tidemark.control import statements as s
from tidemark.control.parse import parse
from tidemark.control.webhook.check import passes, planned_check
from tidemark.control.webhook.spec import Check, Given, HeaderFilter, IncludedHeader, Webhook
from tidemark.errors import SqlError, Unsupported
from tidemark.types import BYTEA, JSONB, TEXT, Column

SECRET = "It's a Secret to Everybody"
NOW = dt.datetime(2026, 11, 18, 2, 0, tzinfo=dt.UTC)


def created(rest: str) -> s.CreateWebhookSource:
    statement = parse(f"CREATE SOURCE hook FROM WEBHOOK {rest}")
    assert isinstance(statement, s.CreateWebhookSource)
    return statement


def check(condition: str) -> Check:
    statement = created(f"BODY FORMAT TEXT CHECK ({condition})")
    assert statement.check is not None
    named = [
        (each.name, Given(each.what, each.as_bytes, ".".join(each.secret)))
        for each in statement.check_with
    ]
    made = planned_check(statement.check, named)
    # As it comes back from the catalog.
    return msgspec.json.decode(msgspec.json.encode(made), type=Check)


def meets(condition: str, headers: dict[str, str] | None = None, body: bytes = b"") -> bool:
    given = {name: value.encode() for name, value in (headers or {}).items()}
    return passes(check(condition), given, body, secret={"k": SECRET}.__getitem__, now=NOW)


def holds(expression: str) -> bool:
    return meets(f"WITH (HEADERS, BODY, BODY AS raw BYTES) {expression}", {"a": "x=1"}, b'{"n": 7}')


# Signatures.


def test_a_signature_like_githubs():
    condition = """
        WITH (HEADERS, BODY BYTES, SECRET k)
        constant_time_eq(headers->'x-hub-signature-256',
                         'sha256=' || encode(hmac(body, k, 'sha256'), 'hex'))"""
    body = '{"action": "opened", "by": "Ünal"}'.encode()
    signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert meets(condition, {"x-hub-signature-256": signature}, body)
    assert not meets(condition, {"x-hub-signature-256": signature}, body + b" ")
    assert not meets(condition, {"x-hub-signature-256": signature.upper()}, body)
    assert not meets(condition, {}, body)


def test_the_example_that_github_documents():
    # https://docs.github.com/webhooks: "Hello, World!" with this secret.
    condition = "WITH (BODY, SECRET k) encode(hmac(body, k, 'sha256'), 'hex') = '{}'"
    documented = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert meets(condition.format(documented), {}, b"Hello, World!")


def test_a_signature_like_stripes_with_a_time():
    condition = """
        WITH (HEADERS AS h, BODY, SECRET k)
        constant_time_eq(
            split_part(split_part(h->'stripe-signature', 'v1=', 2), ',', 1),
            encode(hmac(split_part(split_part(h->'stripe-signature', 't=', 2), ',', 1)
                        || '.' || body, k, 'sha256'), 'hex'))
        AND abs(extract(epoch FROM now())
                - split_part(split_part(h->'stripe-signature', 't=', 2), ',', 1)::bigint) < 300"""

    def signed(at: int) -> dict[str, str]:
        told = hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        return {"stripe-signature": f"t={at},v1={told},v0=abc"}

    body, now = b'{"id": "evt_1"}', int(NOW.timestamp())
    assert meets(condition, signed(now), body)
    assert meets(condition, signed(now - 299), body)
    assert not meets(condition, signed(now - 300), body)
    assert not meets(condition, signed(now), b"{}")
    assert not meets(condition, {"stripe-signature": "t=soon,v1=x"}, body)
    assert not meets(condition, {"stripe-signature": ""}, body)


def test_a_signature_in_base64_of_bytes_like_shopifys():
    condition = """
        WITH (HEADERS, BODY BYTES, SECRET k AS key BYTES)
        constant_time_eq(decode(headers->'x-hmac', 'base64'), hmac(body, key, 'sha256'))"""
    body = b"\xff\x00 no text at all"
    signature = base64.b64encode(hmac.new(SECRET.encode(), body, hashlib.sha256).digest()).decode()
    assert meets(condition, {"x-hmac": signature}, body)
    assert not meets(condition, {"x-hmac": signature[:-4]}, body)
    assert not meets(condition, {"x-hmac": "not base64!"}, body)


def test_a_token_and_basic_authentication():
    assert meets(
        "WITH (HEADERS, SECRET k) headers->'authorization' = 'Bearer ' || k",
        {"authorization": f"Bearer {SECRET}"},
    )
    basic = base64.b64encode(f"me:{SECRET}".encode()).decode()
    condition = """WITH (HEADERS, SECRET k) constant_time_eq('me:' || k,
        convert_from(decode(split_part(headers->>'authorization', ' ', 2), 'base64'), 'utf8'))"""
    assert meets(condition, {"authorization": f"Basic {basic}"})
    assert not meets(condition, {"authorization": f"Basic {basic[:-4]}"})


# What SQL means.


@pytest.mark.parametrize(
    "expression",
    [
        "headers->'a' = 'x=1' AND headers->>'a' = 'x=1' AND headers->'b' IS NULL",
        "headers ? 'a' AND NOT headers ? 'A'",
        "body::jsonb->>'n' = '7' AND (body::jsonb->'n')::integer + 1 = 8 AND body::jsonb->'m' IS NULL",
        "split_part(headers->'a', '=', 2)::numeric * 1.5 = 1.50",
        "raw = body::bytea AND length(raw) = 8 AND raw || raw = (body || body)::bytea",
        "raw::text = '\\x7b226e223a20377d'",
        "body LIKE '{%}' AND body NOT LIKE '_' AND 'aXb' ILIKE 'a_B' AND '50%' LIKE '50\\%'",
        "left(body, 2) || right(body, 2) = '{\"7}' AND substring(body FROM 3 FOR 1) = 'n'",
        "left('abc', -1) = 'ab' AND right('abc', -1) = 'bc' AND substring('abc', 0, 2) = 'a'",
        "strpos(body, 'n') = 3 AND starts_with(body, '{') AND position('z' IN body) = 0",
        "lower('AB') = 'ab' AND upper('ab') = 'AB' AND btrim('xax', 'x') = 'a' AND ltrim(' a') = 'a'",
        "replace('aba', 'a', 'c') = 'cbc' AND concat('a', NULL, 'b') = 'ab' AND md5('a') LIKE '0cc1%'",
        "encode(digest('abc', 'sha1'), 'hex') = 'a9993e364706816aba3e25717850c26c9cd0d89d'",
        "encode(decode('00ff', 'hex'), 'base64') = 'AP8='",
        "encode(digest('abc', 'sha512'), 'base64') LIKE E'%\\n%'",  # PostgreSQL breaks its lines.
        "CASE WHEN body = '' THEN false WHEN body <> '' THEN true END",
        "coalesce(headers->'b', headers->'a') IN ('x=1', 'y')",
        "(NULL OR true) AND NOT (NULL AND false) AND (NULL::boolean IS NULL)",
        "headers->'b' IS DISTINCT FROM 'x' AND 1 < 2 AND 'a' < 'b' AND 2 >= 2",
        "extract(epoch FROM current_timestamp) = 1794967200 AND now() > '2026-01-01'",
        "nullif(body, body) IS NULL AND length('für') = 3 AND octet_length('für') = 4",
        "true IS TRUE AND (headers->'b' = 'x') IS NOT TRUE AND -(1 - 2) = 1",
    ],
)
def test_expressions_mean_what_they_mean_elsewhere(expression: str):
    assert holds(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "headers->'b' = 'x'",  # null is not true
        "NULL",
        "hmac(headers->'b', 'k', 'sha256') = raw",
        "headers->'b' IN ('x', 'y')",
        "headers->'a' IN ('y', NULL)",
        "(headers->'a')::integer = 1",  # what fails does not pass
        "split_part(body, 'x', 0) = ''",
        "2147483647 + length(body) > 0",
        "body::jsonb->>'n' = '8'",
        "(body::jsonb)::boolean",
        "decode('xyz', 'hex') = raw",
        "convert_from(decode('ff', 'hex'), 'utf8') = ''",
        "body LIKE headers->'a' || '\\'",
    ],
)
def test_what_is_null_or_fails_does_not_pass(expression: str):
    assert not holds(expression)


@pytest.mark.parametrize(
    ("expression", "message", "sqlstate"),
    [
        ("body", "must be type boolean", "42804"),
        ("secret = 'a'", "does not exist (name what the condition uses", "42703"),
        ("nothing(body) = 'a'", "function nothing(text) does not exist", "42883"),
        ("reverse(body) = 'a'", "reverse is not possible in a CHECK", "0A000"),
        ("body ~ 'a'", "~ is not possible in a CHECK", "0A000"),
        ("sqrt(2) > 1", "double precision are not possible", "0A000"),
        ("body = ANY(ARRAY['a'])", "= any is not possible in a CHECK", "0A000"),
        ("hmac(body, 'k', 'sha3') = raw", '"sha3" is no known digest', "22023"),
        ("encode(raw, 'rot13') = body", 'unrecognized encoding: "rot13"', "22023"),
        ("encode(body, 'hex') = body", "function encode(text, text) does not exist", "42883"),
        ("constant_time_eq(body, raw)", "constant_time_eq(text, bytea) does not exist", "42883"),
        ("hmac(body, 'k') = raw", "function hmac(text, text) does not exist", "42883"),
        ("hmac(1, 'k', 'md5') = raw", "function hmac(integer, text, text)", "42883"),
        ("extract(year FROM now()) = 1", "extract(year ...) is not possible", "42601"),
        ("true::integer = 1", "cast of boolean to integer is not possible", "0A000"),
        ("EXISTS (SELECT 1)", "cannot read relations", "0A000"),
        ("body = (SELECT 'a')", "cannot read relations", "0A000"),
        ("count(*) = 1", "aggregate functions are not allowed in CHECK", "42803"),
        ("mz_now() > 1", "mz_now", "0A000"),
    ],
)
def test_what_cannot_be_checked_is_refused_when_the_source_is_made(
    expression: str, message: str, sqlstate: str
):
    with pytest.raises(SqlError) as caught:
        check(f"WITH (BODY, BODY AS raw BYTES) {expression}")
    assert message in str(caught.value)
    assert caught.value.sqlstate == sqlstate


def test_one_name_is_one_thing():
    with pytest.raises(SqlError, match='WITH names "x" more than once'):
        check("WITH (HEADERS AS x, BODY AS x) true")
    with pytest.raises(Unsupported, match="HEADERS BYTES"):
        check("WITH (HEADERS BYTES) true")


# The statement.


def test_the_whole_statement():
    found = parse(
        """CREATE SOURCE IF NOT EXISTS a.b IN CLUSTER c FROM WEBHOOK BODY FORMAT JSON ARRAY
           INCLUDE HEADER 'X-Name' AS name, INCLUDE HEADER 'y' AS "Y" BYTES
           INCLUDE HEADERS (NOT 'Authorization', 'x', 'Y')
           CHECK (WITH (HEADERS, BODY BYTES AS b, SECRET d.s AS k, SECRET "T" BYTES)
                  constant_time_eq(headers->'x', encode(hmac(b, k, 'sha256'), 'hex')) OR (1 = 1))
           WITH (RETAIN HISTORY FOR '1h');"""
    )
    assert isinstance(found, s.CreateWebhookSource)
    assert (found.name, found.cluster, found.if_not_exists) == (("a", "b"), "c", True)
    assert found.format == "json array"
    assert found.headers == HeaderFilter(only=("x", "y"), without=("authorization",))
    assert found.included == (
        IncludedHeader("x-name", "name"),
        IncludedHeader("y", "Y", as_bytes=True),
    )
    assert found.check_with == (
        s.CheckWith("headers", "headers"),
        s.CheckWith("body", "b", as_bytes=True),
        s.CheckWith("secret", "k", secret=("d", "s")),
        s.CheckWith("secret", "T", as_bytes=True, secret=("T",)),
    )
    assert found.with_options == (("retain history for", "1h"),)
    assert found.sql.startswith("CREATE SOURCE IF NOT EXISTS a.b")


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("", "needs the format of its bodies"),
        ("BODY FORMAT AVRO", 'near "AVRO"'),
        ("BODY FORMAT JSON INCLUDE HEADER x AS y", 'near "x"'),
        ("BODY FORMAT JSON INCLUDE HEADER 'x'", "end of input"),
        ("BODY FORMAT JSON INCLUDE HEADERS INCLUDE HEADERS", "more than once"),
        ("BODY FORMAT JSON INCLUDE HEADERS (NOT)", 'near ")"'),
        ("BODY FORMAT JSON CHECK ()", 'near ")"'),
        ("BODY FORMAT JSON CHECK (WITH (COOKIES) true)", 'near "COOKIES"'),
        ("BODY FORMAT JSON CHECK (true) EXTRA", 'near "EXTRA"'),
    ],
)
def test_bad_statements(rest: str, message: str):
    with pytest.raises(SqlError) as caught:
        created(rest)
    assert message in str(caught.value)


def test_columns():
    all_of_them = Webhook(
        "json",
        HeaderFilter(),
        (IncludedHeader("x", "a"), IncludedHeader("y", "b", as_bytes=True)),
    )
    assert all_of_them.columns == (
        Column("body", JSONB, nullable=False),
        Column("headers", JSONB, nullable=False),
        Column("a", TEXT),
        Column("b", BYTEA),
    )
    assert [Webhook(f).columns[0].type for f in ("text", "bytes", "json array")] == [
        TEXT,
        BYTEA,
        JSONB,
    ]
