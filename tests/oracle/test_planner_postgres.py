"""Queries planned here and run on Spark give what PostgreSQL gives, row for row.

`QUERIES` are hand-written, one per line; small tables with nulls and duplicates make every kind of
join, subquery and grouping tell its edge cases apart. `ERRORS` fail in both, with one message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from services import PostgresServer
from tidemark.compute.batch import batch_sql
from tidemark.compute.plan import Get, Plan
from tidemark.compute.recursion import Recursion, is_recursive
from tidemark.compute.sql import parse_query, plan_query
from tidemark.errors import SqlError
from tidemark.types import BIGINT, BOOLEAN, INTEGER, TEXT, Column, numeric

TABLES: dict[str, tuple[tuple[Column, ...], list[tuple[Any, ...]]]] = {
    "t": (
        (Column("a", INTEGER), Column("b", TEXT), Column("c", numeric(10, 2))),
        [
            (1, "x", Decimal("1.50")),
            (1, "x", Decimal("1.50")),
            (2, "y", Decimal("-3.00")),
            (3, None, Decimal("7.25")),
            (None, "z", None),
            (None, None, Decimal("0.00")),
            (4, "x", Decimal("2.00")),
            (7, "q", Decimal("9.99")),
        ],
    ),
    "u": (
        (Column("a", INTEGER), Column("d", INTEGER), Column("f", BOOLEAN)),
        [
            (1, 10, True),
            (1, 20, False),
            (2, None, None),
            (2, 5, True),
            (None, 7, True),
            (None, None, False),
            (5, 5, None),
            (5, 5, None),
            (3, 100, False),
        ],
    ),
    "v": (
        (Column("a", BIGINT), Column("b", TEXT), Column("m", numeric(10, 2))),
        [
            (1, "x", Decimal("10.00")),
            (2, "x", Decimal("20.00")),
            (4, "y", None),
            (6, None, Decimal("5.50")),
            (None, "w", Decimal("1.00")),
        ],
    ),
    "e": (
        (Column("src", INTEGER), Column("dst", INTEGER)),
        [(1, 2), (2, 3), (3, 1), (3, 4), (4, 4), (5, 6), (6, None)],
    ),
    "nothing": ((Column("a", INTEGER), Column("b", TEXT)), []),
}

QUERIES = """
SELECT * FROM t LEFT JOIN u ON t.a = u.a
SELECT * FROM t LEFT JOIN u ON t.a = u.a AND u.d > 5
SELECT * FROM t LEFT JOIN u ON t.a < u.a
SELECT * FROM t LEFT JOIN u ON false
SELECT * FROM t RIGHT JOIN u ON t.a = u.a AND t.c > 0
SELECT * FROM t FULL JOIN u ON t.a = u.a
SELECT * FROM t FULL OUTER JOIN u ON t.a = u.a AND t.b = 'x'
SELECT * FROM t LEFT JOIN u USING (a)
SELECT * FROM t RIGHT JOIN u USING (a)
SELECT * FROM t FULL JOIN u USING (a)
SELECT a, t.a, u.a FROM t FULL JOIN u USING (a) WHERE a > 1
SELECT a, count(*) FROM t FULL JOIN v USING (a) GROUP BY a
SELECT * FROM t FULL JOIN u USING (a) FULL JOIN v USING (a)
SELECT * FROM t NATURAL JOIN v
SELECT * FROM t NATURAL LEFT JOIN v
SELECT * FROM t NATURAL JOIN e
SELECT * FROM t CROSS JOIN nothing
SELECT * FROM t LEFT JOIN nothing ON true
SELECT t.a, u.d, v.m FROM t LEFT JOIN u ON t.a = u.a LEFT JOIN v ON v.a = u.d / 5
SELECT t.a, u.d, v.m FROM t LEFT JOIN (u JOIN v ON u.a = v.a) ON t.a = u.a
SELECT t.a, j.d FROM t LEFT JOIN (u JOIN v USING (a)) AS j ON t.a = j.a
SELECT t.a, u.a, v.a FROM t, u RIGHT JOIN v ON u.a = v.a WHERE t.b = 'x'
SELECT t.a, u.a, v.a FROM t JOIN u ON t.a = u.a, v LEFT JOIN e ON e.src = v.a
SELECT x.a, y.a FROM t x LEFT JOIN t y ON x.a = y.a + 1
SELECT t.a FROM t LEFT JOIN u ON t.a = u.a WHERE u.a IS NULL
SELECT a FROM t UNION ALL SELECT a FROM u
SELECT a FROM t UNION SELECT a FROM u
SELECT a FROM t UNION SELECT a FROM v
SELECT a, c FROM t UNION ALL SELECT a, m FROM v
SELECT a FROM t EXCEPT SELECT a FROM u
SELECT a FROM t EXCEPT ALL SELECT a FROM u
SELECT a FROM t INTERSECT SELECT a FROM u
SELECT a FROM t INTERSECT ALL SELECT a FROM u
SELECT a, b FROM t INTERSECT ALL SELECT a, b FROM t
SELECT a FROM t UNION ALL SELECT a FROM u EXCEPT SELECT a FROM v
SELECT a FROM t UNION SELECT a FROM u INTERSECT SELECT a FROM v
(SELECT a FROM t UNION SELECT a FROM u) INTERSECT ALL SELECT a FROM v
SELECT 1 AS x UNION ALL SELECT NULL UNION ALL SELECT 2.5
SELECT 'x' AS b UNION SELECT b FROM t
SELECT NULL UNION ALL SELECT a FROM t
VALUES (1, 'a'), (2, NULL) UNION ALL SELECT a, b FROM t
SELECT a FROM t UNION ALL SELECT a FROM u ORDER BY a DESC NULLS LAST LIMIT 4
(SELECT a FROM t ORDER BY a LIMIT 3) UNION ALL (SELECT d FROM u ORDER BY d DESC NULLS LAST LIMIT 2)
SELECT x FROM (SELECT a FROM t EXCEPT SELECT a FROM u) s(x) WHERE x > 1
SELECT * FROM (SELECT a, b FROM t ORDER BY a, b LIMIT 3) s
SELECT * FROM (SELECT a, b FROM t ORDER BY c DESC NULLS LAST LIMIT 3 OFFSET 1) s
SELECT * FROM (SELECT a FROM t ORDER BY c) s
SELECT count(*) FROM (SELECT a FROM t LIMIT 5) s
SELECT count(*) FROM (SELECT a FROM t LIMIT ALL OFFSET 3) s
SELECT count(*) FROM (SELECT a FROM t LIMIT NULL) s
SELECT count(*) FROM (SELECT a FROM t FETCH FIRST 2 ROWS ONLY) s
SELECT a, b FROM t ORDER BY a NULLS FIRST, b LIMIT 3
SELECT DISTINCT ON (b) b, a FROM t ORDER BY b, a DESC NULLS LAST
SELECT DISTINCT ON (b, a) a FROM t ORDER BY a, b, c
SELECT * FROM (SELECT DISTINCT ON (a) a, d FROM u ORDER BY a, d NULLS FIRST) s WHERE d IS NULL
SELECT DISTINCT ON (a % 2) a % 2, d FROM u ORDER BY a % 2, d DESC NULLS LAST LIMIT 2
SELECT DISTINCT a, b FROM t ORDER BY b, a LIMIT 4
WITH x AS (SELECT a FROM t WHERE a > 1) SELECT * FROM x
WITH x AS (SELECT a FROM t WHERE a > 1) SELECT p.a, q.a FROM x p, x q
WITH x AS (SELECT a FROM t), y(k) AS (SELECT a + 1 FROM x) SELECT k FROM y UNION ALL SELECT a FROM x
WITH x AS (SELECT a, count(*) AS n FROM t GROUP BY a) SELECT * FROM x WHERE n = (SELECT max(n) FROM x)
WITH t AS (SELECT 1 AS a) SELECT * FROM t
WITH x AS (SELECT 1 AS a) SELECT * FROM (WITH x AS (SELECT 2 AS a) SELECT * FROM x) s, x
SELECT (WITH x AS (SELECT u.d FROM u WHERE u.a = t.a) SELECT sum(p.d + q.d) FROM x p, x q) FROM t
SELECT (SELECT 1)
SELECT (SELECT max(d) FROM u) AS m, a FROM t
SELECT a, (SELECT max(d) FROM u WHERE u.a = t.a) AS m FROM t
SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a) AS n FROM t
SELECT a, (SELECT count(d) + 1 FROM u WHERE u.a = t.a AND u.d > 5) AS n FROM t
SELECT a, (SELECT coalesce(sum(d), -1) FROM u WHERE u.a = t.a) AS n FROM t
SELECT a, (SELECT count(*) FROM u WHERE u.a < t.a) AS n FROM t
SELECT a, (SELECT count(*) FROM u WHERE u.a IS NOT DISTINCT FROM t.a) AS n FROM t
SELECT a, (SELECT sum(d * t.a) FROM u WHERE u.a = t.a) AS n FROM t
SELECT a, (SELECT max(d) FROM u WHERE u.a = t.a HAVING count(*) > 1) AS n FROM t
SELECT a, (SELECT max(d) FROM u WHERE u.a = t.a GROUP BY u.a) AS n FROM t
SELECT a, (SELECT d FROM u WHERE u.a = t.a ORDER BY d NULLS FIRST LIMIT 1) AS n FROM t
SELECT a, (SELECT d FROM u WHERE u.a < t.a ORDER BY d DESC NULLS LAST LIMIT 1) AS n FROM t
SELECT a, (SELECT d FROM u WHERE u.a = t.a ORDER BY d LIMIT 1 OFFSET 1) AS n FROM t
SELECT a, (SELECT DISTINCT d FROM u WHERE u.a = 5 AND t.a = 1) AS n FROM t
SELECT a, (SELECT b FROM v WHERE v.a = t.a) AS n FROM t
SELECT a, (SELECT f FROM u WHERE u.a = t.a AND u.a = 3) AS n FROM t
SELECT a, (SELECT t.a + 1) AS n FROM t
SELECT a, (SELECT t.a WHERE t.b = 'x') AS n FROM t
SELECT a, (SELECT max(x) FROM (SELECT d AS x FROM u WHERE u.a = t.a UNION ALL SELECT t.a) s) AS n FROM t
SELECT a, (SELECT count(*) FROM (SELECT u.a FROM u WHERE u.a = t.a EXCEPT ALL SELECT v.a FROM v WHERE v.b = t.b) s) AS n FROM t
SELECT a, (SELECT count(*) FROM (SELECT DISTINCT d FROM u WHERE u.a >= t.a) s) AS n FROM t
SELECT a, (SELECT sum(n) FROM (SELECT count(*) AS n FROM u WHERE u.a <= t.a GROUP BY f) s) AS n FROM t
SELECT a, (SELECT count(*) FROM u LEFT JOIN v ON u.a = v.a AND v.b = t.b WHERE u.a = t.a) AS n FROM t
SELECT a, (SELECT count(v.a) FROM u LEFT JOIN v ON u.a = v.a AND v.b = t.b WHERE u.a <= t.a) AS n FROM t
SELECT a, (SELECT count(*) FROM (SELECT * FROM u WHERE u.a = t.a) x FULL JOIN (SELECT * FROM v WHERE v.b = t.b) y ON x.a = y.a) AS n FROM t
SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a AND EXISTS (SELECT 1 FROM v WHERE v.a = u.a AND v.b = t.b)) AS n FROM t
SELECT a, (SELECT max((SELECT sum(m) FROM v WHERE v.a <= u.a AND v.a >= t.a)) FROM u WHERE u.d > t.a) AS n FROM t
SELECT a, CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.a = t.a) THEN 'yes' ELSE 'no' END FROM t
SELECT a, EXISTS (SELECT 1 FROM u WHERE u.a > t.a) FROM t
SELECT a, NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND d > 5) FROM t
SELECT a, EXISTS (SELECT 1 FROM nothing), EXISTS (SELECT 1 FROM u) FROM t
SELECT a, a IN (SELECT a FROM u) FROM t
SELECT a, a NOT IN (SELECT a FROM u WHERE a IS NOT NULL) FROM t
SELECT a, a IN (SELECT a FROM nothing), a NOT IN (SELECT a FROM nothing) FROM t
SELECT a, a IN (SELECT u.a FROM u WHERE u.d > t.a) FROM t
SELECT a, a NOT IN (SELECT u.d FROM u WHERE u.a = t.a) FROM t
SELECT a, a > ANY (SELECT u.a FROM u), a <= ALL (SELECT u.a FROM u WHERE u.a > 1) FROM t
SELECT a, a > ALL (SELECT d FROM u WHERE u.a = t.a), a < ANY (SELECT d FROM u WHERE u.a = t.a) FROM t
SELECT a, (a, b) IN (SELECT a, b FROM v), (a, b) NOT IN (SELECT a, b FROM v) FROM t
SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a)
SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)
SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u)
SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u)
SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM nothing WHERE nothing.a = t.a)
SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u JOIN v ON u.a = v.a WHERE u.a = t.a AND v.b = t.b)
SELECT a FROM t WHERE EXISTS (SELECT u.a FROM u WHERE u.a = t.a GROUP BY u.a HAVING count(*) > 1)
SELECT a FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE u.a = t.a)
SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a LIMIT 0)
SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a OFFSET 1)
SELECT a FROM t WHERE EXISTS (SELECT a FROM u WHERE u.a = t.a INTERSECT SELECT a FROM v)
SELECT a FROM t WHERE a IN (SELECT a FROM u)
SELECT a FROM t WHERE a IN (SELECT a FROM v)
SELECT a FROM t WHERE a IN (SELECT d FROM u WHERE u.f) OR b = 'x'
SELECT a FROM t WHERE a NOT IN (SELECT a FROM u)
SELECT a FROM t WHERE a NOT IN (SELECT a FROM u WHERE a IS NOT NULL)
SELECT a FROM t WHERE a NOT IN (SELECT a FROM nothing)
SELECT a FROM t WHERE NOT (a IN (SELECT a FROM v WHERE a < 3))
SELECT a FROM t WHERE a NOT IN (SELECT u.a FROM u WHERE u.d > t.a)
SELECT a FROM t WHERE a NOT IN (SELECT u.d FROM u WHERE u.a = t.a)
SELECT a FROM t WHERE (a, b) IN (SELECT a, b FROM v)
SELECT a FROM t WHERE (a, b) NOT IN (SELECT a, b FROM v)
SELECT a FROM t WHERE (a, b) NOT IN (SELECT a, b FROM v WHERE a IS NOT NULL AND b IS NOT NULL)
SELECT a FROM t WHERE a = ANY (SELECT d FROM u) OR a = SOME (SELECT a FROM v)
SELECT a FROM t WHERE a <> ALL (SELECT a FROM v WHERE a IS NOT NULL)
SELECT a FROM t WHERE a >= ALL (SELECT a FROM u WHERE a IS NOT NULL)
SELECT a FROM t WHERE NOT a >= ALL (SELECT a FROM u)
SELECT a FROM t WHERE NOT a < ANY (SELECT a FROM u WHERE a IS NOT NULL)
SELECT a FROM t WHERE c > (SELECT avg(c) FROM t)
SELECT a FROM t x WHERE c > (SELECT avg(c) FROM t y WHERE y.b = x.b)
SELECT a FROM t WHERE (SELECT count(*) FROM u WHERE u.a = t.a) = 2
SELECT a FROM t WHERE (SELECT f FROM u WHERE u.a = 3) IS FALSE AND a = 1
SELECT b, count(*) FROM t GROUP BY b HAVING count(*) > (SELECT count(*) FROM v WHERE v.b = t.b)
SELECT b, count(*) FROM t GROUP BY b HAVING b IN (SELECT b FROM v)
SELECT b, count(*) FROM t GROUP BY b HAVING count(*) IN (SELECT a FROM v) AND NOT EXISTS (SELECT 1 FROM v WHERE v.b = t.b AND v.a = 2)
SELECT b, (SELECT max(m) FROM v WHERE v.b = t.b) FROM t GROUP BY b
SELECT b, sum((SELECT count(*) FROM u WHERE u.a = t.a)) FROM t GROUP BY b
SELECT (SELECT count(*) FROM u WHERE u.a = t.a) AS n, count(*) FROM t GROUP BY 1
SELECT (SELECT count(*) FROM u WHERE u.a = t.a) AS n, count(*) FROM t GROUP BY n ORDER BY n LIMIT 2
SELECT count(*) FILTER (WHERE a IN (SELECT a FROM v)) FROM t
SELECT a FROM t ORDER BY (SELECT count(*) FROM u WHERE u.a = t.a) DESC, a LIMIT 3
SELECT t.a, u.d FROM t JOIN u ON t.a = u.a AND u.d IN (SELECT d FROM u WHERE f)
SELECT t.a, u.d FROM t JOIN u ON u.d > (SELECT min(a) FROM v WHERE v.b = t.b)
SELECT t.a, s.d FROM t, LATERAL (SELECT d FROM u WHERE u.a = t.a) s
SELECT t.a, s.n FROM t, LATERAL (SELECT count(*) AS n FROM u WHERE u.a = t.a) s
SELECT t.a, s.d FROM t LEFT JOIN LATERAL (SELECT d FROM u WHERE u.a = t.a ORDER BY d DESC NULLS LAST LIMIT 1) s ON true
SELECT t.a, s.d FROM t CROSS JOIN LATERAL (SELECT d FROM u WHERE u.a = t.a ORDER BY d NULLS FIRST LIMIT 1) s
SELECT t.a, s.d FROM t LEFT JOIN LATERAL (SELECT d, t.a AS k FROM u WHERE u.a <= t.a) s ON s.d > 5
SELECT t.a, s.x, r.y FROM t, LATERAL (SELECT t.a + 1 AS x) s, LATERAL (SELECT s.x * 2 AS y) r
SELECT t.a, s.n FROM t LEFT JOIN LATERAL (SELECT sum(d) AS n FROM u WHERE u.a >= t.a GROUP BY f) s ON s.n > 10
SELECT a, (SELECT s.n FROM LATERAL (SELECT count(*) AS n FROM u WHERE u.a = t.a) s) FROM t
SELECT a, (SELECT sum(s.n) FROM v, LATERAL (SELECT count(*) AS n FROM u WHERE u.a = t.a AND u.d > v.a) s) FROM t
SELECT a, b, count(*) FROM t GROUP BY ROLLUP (a, b)
SELECT a, b, count(*), sum(c) FROM t GROUP BY CUBE (a, b)
SELECT a, b, grouping(a, b), grouping(b), count(*) FROM t GROUP BY GROUPING SETS ((a, b), (a), ())
SELECT a, count(*) FROM nothing GROUP BY ROLLUP (a)
SELECT a, b, count(*) FROM t GROUP BY a, ROLLUP (b)
SELECT b, sum(c) FROM t GROUP BY ROLLUP (b) HAVING grouping(b) = 1 OR sum(c) > 1
SELECT a + 1 AS k, count(*) FROM t WHERE c > 0 GROUP BY ROLLUP (k) ORDER BY k
SELECT grouping(b), count(*) FROM t GROUP BY b
SELECT * FROM generate_series(1, 5) g
SELECT * FROM generate_series(5, 1, -2) AS g(x)
SELECT * FROM generate_series(timestamp '2024-01-01', timestamp '2024-01-02 12:00', interval '6 hours') g
SELECT g::date FROM generate_series(date '2024-03-05', date '2024-03-01', interval '-1 day') g
SELECT x, o FROM unnest(ARRAY[3, 1, NULL, 3]) WITH ORDINALITY AS s(x, o)
SELECT a, unnest(ARRAY[a, a + 1]) FROM t
SELECT a, x FROM t LEFT JOIN LATERAL unnest(ARRAY[b, 'w']) x ON x <> 'x'
SELECT value FROM jsonb_array_elements_text('[1, "x", null, true, {"a": 1}]'::jsonb) WHERE value NOT LIKE '{%'
SELECT value::text FROM jsonb_array_elements('[1, "x", true, 2.5]'::jsonb) WHERE value::text <> 'true'
SELECT key, value FROM jsonb_each_text('{"a": 1, "b": "x", "c": null}'::jsonb)
SELECT key, value::text FROM jsonb_each('{"a": 1, "b": "x"}'::jsonb) WITH ORDINALITY WHERE ordinality <= 2
SELECT k FROM jsonb_object_keys('{"a": 1, "b": {"c": 2}}'::jsonb) k
SELECT count(*) FROM t, jsonb_array_elements('[1, 2]'::jsonb) j
SELECT * FROM generate_series(5, 1)
SELECT t.a, g FROM t, generate_series(1, t.a) g
SELECT t.a, g.x FROM t LEFT JOIN LATERAL generate_series(2, t.a) g(x) ON true
SELECT g.n, g.o FROM generate_series(10, 12) WITH ORDINALITY AS g(n, o)
SELECT a, generate_series(1, a) FROM t
SELECT generate_series(1, 3) + 1 AS x ORDER BY x DESC LIMIT 2
SELECT a, (SELECT sum(g) FROM generate_series(1, t.a) g) FROM t
SELECT s.p FROM t, regexp_split_to_table(t.b, 'x') AS s(p)
SELECT s.p FROM regexp_split_to_table('a1b22c', '[0-9]+') AS s(p)
SELECT t.a, g FROM t, generate_series(1, t.a) g WHERE g + 1 = t.a + 0
SELECT a, e FROM t, unnest(string_to_array('1,2,3', ',')) e WHERE e::int = t.a
SELECT a, row_number() OVER (ORDER BY a, b, c) FROM t
SELECT a, sum(c) OVER (PARTITION BY b) FROM t
SELECT a, rank() OVER (PARTITION BY b ORDER BY c DESC) AS r FROM t ORDER BY r, a LIMIT 4
SELECT b, count(*), rank() OVER (ORDER BY count(*) DESC, b) FROM t GROUP BY b
SELECT b, sum(count(*)) OVER () FROM t GROUP BY b
SELECT * FROM (SELECT a, d, row_number() OVER (PARTITION BY a ORDER BY d NULLS FIRST) AS n FROM u) s WHERE n = 1
SELECT a, sum((SELECT count(*) FROM u WHERE u.a = t.a)) OVER (PARTITION BY b) FROM t
SELECT a, (SELECT max(r) FROM (SELECT rank() OVER (ORDER BY d) AS r FROM u WHERE u.a <= t.a) s) FROM t
SELECT a, row_number() OVER w, count(*) OVER w FROM t WINDOW w AS (PARTITION BY b ORDER BY a, c)
SELECT t.* FROM t WHERE ROW(a, b) = ROW(1, 'x')
SELECT x.a FROM t x WHERE x.a = (SELECT min(y.a) FROM t y WHERE y.b = x.b OR (y.b IS NULL AND x.b IS NULL))
SELECT count(*) FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d <> t.a)
SELECT DISTINCT (SELECT count(*) FROM u WHERE u.a = t.a) FROM t
SELECT a FROM t WHERE a = (SELECT src FROM e WHERE dst = 2)
SELECT a FROM t WHERE b LIKE ANY (SELECT b FROM v)
SELECT coalesce((SELECT a FROM nothing), 5)
SELECT a FROM t WHERE a IN (SELECT u.a FROM u WHERE u.d IN (SELECT v.a * 5 FROM v WHERE v.b = t.b))
SELECT a FROM t WHERE (SELECT 1 FROM nothing) IS NULL AND a > 2
SELECT CASE WHEN a IS NULL THEN (SELECT d FROM u) ELSE a END FROM t WHERE a > 0
SELECT b, EXISTS (SELECT 1 FROM v WHERE v.b = t.b), count(*) IN (SELECT a FROM v) FROM t GROUP BY b
SELECT b, (SELECT count(*) FROM v WHERE v.b = t.b), grouping(b) FROM t GROUP BY ROLLUP (b)
SELECT b, count(*), rank() OVER (ORDER BY count(*)) FROM t GROUP BY CUBE (b)
SELECT a, (SELECT max(x) FROM (VALUES (t.a), (2)) s(x)) FROM t
SELECT a FROM t WHERE a IN (1, (SELECT max(a) FROM u WHERE a < 5))
SELECT a FROM t WHERE a BETWEEN (SELECT min(a) FROM u) AND (SELECT count(*) FROM v WHERE v.b = t.b)
SELECT a FROM t WHERE NOT (EXISTS (SELECT 1 FROM u WHERE u.a = t.a) OR a = 4)
SELECT count(*) FROM t HAVING EXISTS (SELECT 1 FROM u) AND count(*) > (SELECT count(*) FROM v)
SELECT a FROM t WHERE EXISTS (SELECT a FROM u WHERE u.a = t.a UNION ALL SELECT a FROM v WHERE v.a > t.a)
SELECT a, (SELECT count(DISTINCT d) FROM u WHERE u.a <= t.a) FROM t
SELECT a, (SELECT string_agg(v.b, ',' ORDER BY v.a DESC, v.b) FROM v WHERE v.a <= t.a) FROM t
SELECT a, (SELECT string_agg(v.b, ',' ORDER BY v.a * t.a, v.b) FROM v WHERE v.a <= 2) FROM t
SELECT a, (SELECT count(*) FROM u GROUP BY t.a) FROM t
SELECT a, (SELECT max(d) FROM nothing, u WHERE u.a = t.a) FROM t
SELECT a, (SELECT count(*) FROM u WHERE u.a = nothing.a) FROM nothing
SELECT DISTINCT ON (b) b, (SELECT count(*) FROM u WHERE u.a = t.a) AS n FROM t ORDER BY b, n DESC, a
SELECT * FROM t NATURAL FULL JOIN v
SELECT * FROM u RIGHT JOIN v USING (a) LEFT JOIN t USING (a, b)
SELECT c FROM t WHERE c NOT IN (SELECT a FROM u WHERE a > 2) OR c IN (SELECT m FROM v)
SELECT a, a = ALL (SELECT a FROM nothing), a <> ANY (SELECT a FROM nothing) FROM t
SELECT a, (SELECT sum(s.x) FROM (SELECT (SELECT max(v.m) FROM v WHERE v.a = u.a AND v.b = t.b) AS x FROM u) s) FROM t
SELECT a, (SELECT count(*) FROM t WHERE t.a = x.a) FROM t x
SELECT a, (WITH s AS (SELECT d FROM u WHERE u.a = t.a) SELECT count(*) FROM v WHERE v.a IN (SELECT d / 5 FROM s)) FROM t
SELECT a, (WITH s AS (SELECT d FROM u WHERE u.a = t.a) SELECT sum((SELECT sum(d) FROM s WHERE s.d > v.a)) FROM v) FROM t
SELECT a, (WITH s AS (SELECT d FROM u WHERE u.a = t.a) SELECT sum((SELECT sum(p.d) FROM s p, s q WHERE p.d > v.a)) FROM v) FROM t
WITH s AS (SELECT a, d FROM u) SELECT a, (SELECT sum(d) FROM s WHERE s.a = t.a), a IN (SELECT a FROM s) FROM t
SELECT a, (SELECT s.a FROM (SELECT DISTINCT ON (u.a) u.a, d FROM u WHERE u.a <= t.a ORDER BY u.a, d) s ORDER BY s.a DESC LIMIT 1) FROM t
SELECT a, (SELECT count(*) FROM (SELECT 1 FROM u WHERE u.a = t.a LIMIT 1) s) FROM t
SELECT a, (SELECT count(*) FROM (SELECT 1 FROM u WHERE u.a >= t.a OFFSET 2) s) FROM t
SELECT a, (SELECT string_agg(k, '') FROM (SELECT coalesce(b, '-') AS k FROM v WHERE v.a > t.a ORDER BY b LIMIT 1) s) FROM t
SELECT t.a, s.k, r.n FROM t LEFT JOIN LATERAL (SELECT max(d) AS k FROM u WHERE u.a = t.a) s ON true LEFT JOIN LATERAL (SELECT count(*) AS n FROM v WHERE v.a <= s.k) r ON r.n > 1
SELECT t.a FROM t WHERE EXISTS (SELECT 1 FROM u, LATERAL (SELECT u.d + t.a AS x) s WHERE s.x > 10)
SELECT t.a, s.d FROM t JOIN LATERAL (SELECT d FROM u WHERE u.a = t.a UNION ALL SELECT t.a) s ON s.d > 1
SELECT t.a, j.x FROM t, (u LEFT JOIN LATERAL (SELECT u.d * 2 AS x) s ON u.f) AS j WHERE t.a = j.a
SELECT a, d FROM t FULL JOIN u USING (a) WHERE a IN (SELECT a FROM v) OR d IS NULL
SELECT a, sum(a) OVER (ORDER BY (SELECT count(*) FROM u WHERE u.a = t.a), a ROWS UNBOUNDED PRECEDING) FROM t
SELECT a + generate_series(1, 2), (SELECT count(*) FROM u WHERE u.a = t.a) FROM t
SELECT a, (SELECT count(*) FROM e WHERE e.src = t.a AND e.dst NOT IN (SELECT u.d FROM u WHERE u.a = t.a)) FROM t
SELECT a, (a, b) = ANY (SELECT v.a, v.b FROM v WHERE v.m > t.a) FROM t
SELECT a, b FROM t WHERE (a, b) <> ALL (SELECT a, b FROM v)
SELECT max((SELECT max(d) FROM u WHERE u.a = t.a)) FILTER (WHERE EXISTS (SELECT 1 FROM v WHERE v.a = t.a)) FROM t
SELECT a, coalesce((SELECT f FROM u WHERE u.a = t.a AND d = 10), false) FROM t
SELECT x.n FROM (SELECT count(*) AS n FROM t) x WHERE x.n > ALL (SELECT count(*) FROM u GROUP BY a)
SELECT b, sum(a) FROM t GROUP BY b HAVING sum(a) >= ALL (SELECT sum(y.a) FROM t y WHERE y.a IS NOT NULL GROUP BY y.b)
(SELECT a FROM t UNION SELECT a FROM u ORDER BY 1 LIMIT 2) EXCEPT ALL (SELECT 1)
SELECT a FROM t INTERSECT ALL (SELECT a FROM u EXCEPT ALL SELECT a FROM v)
SELECT count(*) FROM t a CROSS JOIN LATERAL (SELECT * FROM u b WHERE b.a = a.a LIMIT 1) c CROSS JOIN LATERAL (SELECT * FROM v d WHERE d.a >= c.a ORDER BY d.a LIMIT 1) e
"""

RECURSIVE = {
    "WITH MUTUALLY RECURSIVE r (a int, b int) AS (SELECT src, dst FROM e UNION SELECT r.a, e.dst FROM r JOIN e ON r.b = e.src) SELECT * FROM r": (
        "WITH RECURSIVE r (a, b) AS (SELECT src, dst FROM e UNION SELECT r.a, e.dst FROM r JOIN e ON r.b = e.src) SELECT * FROM r"
    ),
    "WITH MUTUALLY RECURSIVE n (i bigint) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 10) SELECT sum(i) FROM n": (
        "SELECT 55"
    ),
    "WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 3) n (i int) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n": (
        "SELECT generate_series(1, 3)"
    ),
    "WITH MUTUALLY RECURSIVE odd (i int) AS (SELECT 1 UNION SELECT i + 1 FROM even WHERE i < 9), even (i int) AS (SELECT i + 1 FROM odd WHERE i < 9) SELECT count(*) FROM odd, even": (
        "SELECT 20"
    ),
    "SELECT a, (WITH MUTUALLY RECURSIVE n (i int) AS (SELECT t.a UNION SELECT i - 1 FROM n WHERE i > 1) SELECT sum(i) FROM n) FROM t": (
        "SELECT a, a * (a + 1) / 2 FROM t"
    ),
}

ERRORS = {
    "more than one row returned by a subquery used as an expression": """
SELECT a, (SELECT d FROM u WHERE u.a = t.a) FROM t
SELECT (SELECT a FROM t)
SELECT a FROM t WHERE a = (SELECT u.a FROM u WHERE u.a <= t.a)
SELECT (SELECT f FROM u WHERE u.a = t.a) FROM t
""",
    "step size cannot equal zero": """
SELECT generate_series(1, 5, a - 2) FROM t
SELECT g FROM t, generate_series(1, 5, t.a - 2) g WHERE g > 100
""",
    "division by zero": """
SELECT generate_series(1, 10 / (a - 1)) FROM t
SELECT t.a FROM t LEFT JOIN u ON t.a = u.a AND 10 / (t.a - 1) > 2
SELECT t.a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND 10 / (t.a - 1) > 2)
""",
    "cannot extract elements from an object": """
SELECT e FROM t, jsonb_array_elements(('{"a": ' || a || '}')::jsonb) e
""",
    "cannot extract elements from a scalar": """
SELECT e FROM t, jsonb_array_elements_text((a::text)::jsonb) e
""",
    "cannot call jsonb_each on a non-object": """
SELECT key FROM t, jsonb_each((a::text)::jsonb) e
""",
    "cannot call jsonb_each_text on a non-object": """
SELECT key FROM t, jsonb_each_text(('[' || a || ']')::jsonb) e
""",
    "cannot call jsonb_object_keys on an array": """
SELECT k FROM t, jsonb_object_keys(('[' || a || ']')::jsonb) k
""",
    "cannot call jsonb_object_keys on a scalar": """
SELECT k FROM t, jsonb_object_keys((a::text)::jsonb) k
""",
}


class Catalog:
    def resolve(self, parts: tuple[str, ...]) -> Plan:
        if parts[-1] in TABLES:
            return Get(parts[-1], TABLES[parts[-1]][0])
        raise SqlError(f'relation "{".".join(parts)}" does not exist', sqlstate="42P01")


@pytest.fixture(scope="module")
def postgres(postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_server.uri(), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA planned")
        connection.execute("SET search_path TO planned")
        for name, (columns, rows) in TABLES.items():
            defined = ", ".join(f"{column.name} {column.type}" for column in columns)
            connection.execute(f"CREATE TABLE {name} ({defined})".encode())
            places = ", ".join("%s" for _ in columns)
            with connection.cursor() as cursor:
                cursor.executemany(f"INSERT INTO {name} VALUES ({places})".encode(), rows)
        yield connection


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    for name, (columns, rows) in TABLES.items():
        arrays = [
            pa.array([row[at] for row in rows], column.type.arrow)
            for at, column in enumerate(columns)
        ]
        table = pa.table(arrays, names=[f"c{at}" for at in range(len(columns))])
        spark.createDataFrame(table).createOrReplaceTempView(f"planned_{name}")
    return spark


def ours(session: SparkSession, sql: str, *, view: bool = False) -> Counter[tuple[Any, ...]]:
    plan = plan_query(parse_query(sql), Catalog(), view=view)

    def relation(get: Get) -> str:
        return f"planned_{get.id}"

    if is_recursive(plan):
        plan = Recursion(session, relation).without_recursion(plan)
    rows = session.sql(batch_sql(plan, relation)).collect()
    return Counter(tuple(map(plain, row)) for row in rows)


def theirs(postgres: psycopg.Connection, sql: str) -> Counter[tuple[Any, ...]]:
    rows = postgres.execute(sql.encode()).fetchall()
    return Counter(tuple(map(plain, row)) for row in rows)


def plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return round(Decimal(value), 6)
    return value


@pytest.mark.parametrize("sql", QUERIES.strip().splitlines())
def test_queries(session: SparkSession, postgres: psycopg.Connection, sql: str) -> None:
    assert ours(session, sql) == theirs(postgres, sql)


@pytest.mark.parametrize("sql", RECURSIVE)
def test_recursion(session: SparkSession, postgres: psycopg.Connection, sql: str) -> None:
    assert ours(session, sql) == theirs(postgres, RECURSIVE[sql])


@pytest.mark.parametrize(
    ("message", "sql"),
    [(message, sql) for message, text in ERRORS.items() for sql in text.strip().splitlines()],
)
def test_errors(
    session: SparkSession, postgres: psycopg.Connection, message: str, sql: str
) -> None:
    with pytest.raises(psycopg.Error, match=message):
        theirs(postgres, sql)
    with pytest.raises(PySparkException, match=message):
        ours(session, sql)
