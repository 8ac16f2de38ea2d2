-- After each of these the session lives on.
CREATE TABLE er_t (k int NOT NULL, v int, t text, day date);
INSERT INTO er_t VALUES (1, 10, 'a', '2024-01-01'), (2, 0, 'b', NULL);
----
CREATE TABLE
INSERT 0 2

SELEKT 1;
SELECT 1 +;
SELECT * FORM er_t;
SELECT 1);
----
ERROR:  syntax error at or near "SELEKT"
LINE 1: SELEKT 1;
        ^
ERROR:  syntax error at end of input
LINE 1: SELECT 1 +;
                  ^
ERROR:  syntax error at or near "er_t"
LINE 1: SELECT * FORM er_t;
                      ^
ERROR:  syntax error at or near ")"
LINE 1: SELECT 1);
                ^

SELECT * FROM nowhere;
SELECT * FROM er_t x JOIN nowhere y ON x.k = y.k;
SELECT * FROM elsewhere.er_t;
SELECT * FROM otherdb.public.er_t;
INSERT INTO nowhere VALUES (1);
UPDATE nowhere SET a = 1;
DELETE FROM nowhere;
----
ERROR:  relation "nowhere" does not exist
LINE 1: SELECT * FROM nowhere;
                      ^
ERROR:  relation "nowhere" does not exist
LINE 1: SELECT * FROM er_t x JOIN nowhere y ON x.k = y.k;
                                  ^
ERROR:  relation "elsewhere.er_t" does not exist
LINE 1: SELECT * FROM elsewhere.er_t;
                      ^
HINT:  did you mean tidemark.public.er_t?
ERROR:  relation "otherdb.public.er_t" does not exist
LINE 1: SELECT * FROM otherdb.public.er_t;
                      ^
HINT:  did you mean tidemark.public.er_t?
ERROR:  relation "nowhere" does not exist
LINE 1: INSERT INTO nowhere VALUES (1);
                    ^
ERROR:  relation "nowhere" does not exist
LINE 1: UPDATE nowhere SET a = 1;
               ^
ERROR:  relation "nowhere" does not exist
LINE 1: DELETE FROM nowhere;
                    ^

SELECT nothing FROM er_t;
SELECT er_t.nothing FROM er_t;
SELECT x.k FROM er_t;
SELECT k FROM er_t a JOIN er_t b ON a.k = b.k;
INSERT INTO er_t (nothing) VALUES (1);
UPDATE er_t SET nothing = 1;
SELECT nofunction(k) FROM er_t;
SELECT upper(1, 2);
SELECT k, count(*) FROM er_t;
SELECT k FROM er_t WHERE count(*) > 1;
SELECT v FROM er_t GROUP BY k;
----
ERROR:  column "nothing" does not exist
LINE 1: SELECT nothing FROM er_t;
               ^
ERROR:  column er_t.nothing does not exist
LINE 1: SELECT er_t.nothing FROM er_t;
               ^
ERROR:  missing FROM-clause entry for table "x"
LINE 1: SELECT x.k FROM er_t;
               ^
ERROR:  column reference "k" is ambiguous
LINE 1: SELECT k FROM er_t a JOIN er_t b ON a.k = b.k;
               ^
ERROR:  column "nothing" does not exist
LINE 1: INSERT INTO er_t (nothing) VALUES (1);
                          ^
ERROR:  column "nothing" of relation "er_t" does not exist
LINE 1: UPDATE er_t SET nothing = 1;
                        ^
ERROR:  function nofunction(integer) does not exist
LINE 1: SELECT nofunction(k) FROM er_t;
               ^
HINT:  it is none of the functions that Tidemark maintains: <functions>
ERROR:  function upper(integer, integer) does not exist
LINE 1: SELECT upper(1, 2);
               ^
HINT:  no function or operator takes these types; an explicit cast may help
ERROR:  column "er_t.k" must appear in the GROUP BY clause or be used in an aggregate function
ERROR:  aggregate functions are not allowed in WHERE
LINE 1: SELECT k FROM er_t WHERE count(*) > 1;
                                 ^
ERROR:  column "er_t.v" must appear in the GROUP BY clause or be used in an aggregate function

-- Types.
SELECT k + t FROM er_t;
SELECT k FROM er_t WHERE t;
SELECT k FROM er_t WHERE k = 'one';
SELECT k FROM er_t WHERE t = 1;
SELECT day > 5 FROM er_t;
SELECT 'abc'::int;
SELECT t::int FROM er_t WHERE k = 1;
SELECT sum(t) FROM er_t;
INSERT INTO er_t VALUES ('x');
INSERT INTO er_t (k, v) VALUES (3, 'x');
INSERT INTO er_t (k, v) VALUES (3, true);
INSERT INTO er_t (k, day) VALUES (3, 5);
UPDATE er_t SET v = day;
UPDATE er_t SET v = 'x';
SELECT 1::nosuchtype;
----
ERROR:  operator does not exist: integer + text
LINE 1: SELECT k + t FROM er_t;
               ^
HINT:  no function or operator takes these types; an explicit cast may help
ERROR:  argument of WHERE must be type boolean, not type text
LINE 1: SELECT k FROM er_t WHERE t;
                                 ^
ERROR:  invalid input syntax for type integer: "one"
LINE 1: SELECT k FROM er_t WHERE k = 'one';
                                 ^
ERROR:  operator does not exist: text = integer
LINE 1: SELECT k FROM er_t WHERE t = 1;
                                 ^
HINT:  no function or operator takes these types; an explicit cast may help
ERROR:  operator does not exist: date > integer
LINE 1: SELECT day > 5 FROM er_t;
               ^
HINT:  no function or operator takes these types; an explicit cast may help
ERROR:  invalid input syntax for type integer: "abc"
LINE 1: SELECT 'abc'::int;
               ^
ERROR:  invalid input syntax for type integer: "a"
ERROR:  function sum(text) does not exist
LINE 1: SELECT sum(t) FROM er_t;
               ^
HINT:  no aggregate takes these types; an explicit cast may help
ERROR:  invalid input syntax for type integer: "x"
ERROR:  invalid input syntax for type integer: "x"
ERROR:  column "v" is of type integer but expression is of type boolean
HINT:  you will need to rewrite or cast the expression
ERROR:  column "day" is of type date but expression is of type integer
HINT:  you will need to rewrite or cast the expression
ERROR:  column "v" is of type integer but expression is of type date
HINT:  you will need to rewrite or cast the expression
ERROR:  invalid input syntax for type integer: "x"
ERROR:  type "nosuchtype" is not supported
LINE 1: SELECT 1::nosuchtype;
               ^
HINT:  supported: bigint, boolean, bytea, date, double precision, integer, interval, jsonb, numeric, smallint, text, timestamp, timestamp with time zone

-- Shapes.
INSERT INTO er_t VALUES (1, 2, 'c', NULL, 5);
INSERT INTO er_t (k, v) VALUES (1);
INSERT INTO er_t VALUES (1, 2), (1);
INSERT INTO er_t (k, k) VALUES (1, 2);
UPDATE er_t SET v = 1, v = 2;
----
ERROR:  INSERT has more expressions than target columns
ERROR:  INSERT has more target columns than expressions
ERROR:  VALUES lists must all be the same length
ERROR:  column "k" specified more than once
ERROR:  multiple assignments to same column "v"

INSERT INTO er_t (v) VALUES (1);
INSERT INTO er_t VALUES (3, 3, 'c', NULL), (NULL, 4, 'd', NULL);
UPDATE er_t SET k = NULL;
SELECT count(*) FROM er_t;
----
ERROR:  null value in column "k" of relation "er_t" violates not-null constraint
ERROR:  null value in column "k" of relation "er_t" violates not-null constraint
ERROR:  null value in column "k" of relation "er_t" violates not-null constraint
 count
-------
     2
(1 row)

SELECT 1 / 0;
SELECT k, 100 / v AS q FROM er_t ORDER BY k;
SELECT k, 100 % v FROM er_t WHERE k = 2;
SELECT k, 100 / v AS q FROM er_t WHERE v <> 0;
SELECT 2147483647 + 1;
SELECT 9223372036854775807 + 1;
UPDATE er_t SET v = 1 / v;
SELECT k, v FROM er_t ORDER BY k;
----
ERROR:  division by zero
ERROR:  division by zero
ERROR:  division by zero
 k | q
---+----
 1 | 10
(1 row)
ERROR:  integer out of range
ERROR:  bigint out of range
ERROR:  division by zero
 k | v
---+----
 1 | 10
 2 |  0
(2 rows)

-- An error row in a maintained view: reads of the view fail, others do not; it heals.
CREATE MATERIALIZED VIEW er_q AS SELECT k, 100 / v AS q FROM er_t;
SELECT * FROM er_q;
----
CREATE MATERIALIZED VIEW
ERROR:  division by zero in (100 / v) where v = 0

-- It is to be seen without reading the view, too.
\a
SHOW MATERIALIZED VIEWS LIKE 'er_q';
SELECT o.name, h.error FROM mz_internal.mz_hydration_statuses h JOIN mz_objects o ON o.id = h.object_id WHERE o.name = 'er_q';
\a
----
Output format is unaligned.
name|cluster|status|error
er_q|quickstart|<status>|division by zero in (100 / v) where v = 0
(1 row)
name|error
er_q|division by zero in (100 / v) where v = 0
(1 row)
Output format is aligned.

CREATE MATERIALIZED VIEW er_sum AS SELECT count(*) AS n, sum(q) AS total FROM er_q;
SELECT * FROM er_sum;
----
CREATE MATERIALIZED VIEW
ERROR:  division by zero in (100 / v) where v = 0

SELECT * FROM er_q JOIN er_t ON er_q.k = er_t.k;
SELECT count(*) FROM er_t;
COPY (SELECT * FROM er_q) TO STDOUT;
COPY (SUBSCRIBE er_q) TO STDOUT;
----
ERROR:  division by zero in (100 / v) where v = 0
 count
-------
     2
(1 row)
ERROR:  division by zero in (100 / v) where v = 0
ERROR:  division by zero in (100 / v) where v = 0

DELETE FROM er_t WHERE v = 0;
SELECT * FROM er_q;
SELECT * FROM er_sum;
\a
SHOW MATERIALIZED VIEWS LIKE 'er_q';
\a
----
DELETE 1
 k | q
---+----
 1 | 10
(1 row)
 n | total
---+-------
 1 |    10
(1 row)
Output format is unaligned.
name|cluster|status|error
er_q|quickstart|<status>|
(1 row)
Output format is aligned.

INSERT INTO er_t VALUES (4, 0, NULL, NULL);
SELECT * FROM er_q;
UPDATE er_t SET v = 25 WHERE v = 0;
SELECT * FROM er_q ORDER BY k;
SELECT * FROM er_sum;
----
INSERT 0 1
ERROR:  division by zero in (100 / v) where v = 0
UPDATE 1
 k | q
---+----
 1 | 10
 4 |  4
(2 rows)
 n | total
---+-------
 2 |    14
(1 row)

-- A cast that fails, the same way.
CREATE MATERIALIZED VIEW er_cast AS SELECT t::int AS i FROM er_t;
SELECT * FROM er_cast;
UPDATE er_t SET t = '7';
SELECT * FROM er_cast;
----
CREATE MATERIALIZED VIEW
ERROR:  invalid input syntax for type integer: "a" in t::integer where t = a
UPDATE 2
 i
---
 7
 7
(2 rows)

-- Names.
CREATE TABLE er_t (a int);
CREATE VIEW er_t AS SELECT 1 AS a;
CREATE MATERIALIZED VIEW er_q AS SELECT k FROM er_t;
CREATE TABLE IF NOT EXISTS er_t (a int);
CREATE TABLE er_x (a int, a int);
CREATE TABLE er_x (_time int);
CREATE TABLE er_x (_anything int);
CREATE TABLE er_x ();
CREATE TABLE mz_catalog.er_x (a int);
CREATE MATERIALIZED VIEW er_x AS SELECT k AS _k FROM er_t;
CREATE MATERIALIZED VIEW er_x AS SELECT k, k FROM er_t;
CREATE VIEW er_x (a, b, c) AS SELECT k FROM er_t;
CREATE VIEW er_x (a) AS SELECT k, v FROM er_t;
SELECT a FROM er_x WHERE v = 25;
----
ERROR:  relation "er_t" already exists
ERROR:  relation "er_t" already exists
ERROR:  relation "er_q" already exists
NOTICE:  relation "er_t" already exists, skipping
CREATE TABLE
ERROR:  column "a" specified more than once
ERROR:  column name "_time" is reserved: names may not begin with _
ERROR:  column name "_anything" is reserved: names may not begin with _
ERROR:  syntax error at or near ")"
LINE 1: CREATE TABLE er_x ();
                           ^
ERROR:  cannot create "er_x" in system schema "mz_catalog"
HINT:  create it in a schema of yours
ERROR:  column name "_k" is reserved: names may not begin with _
ERROR:  column "k" specified more than once
ERROR:  the query has 1 columns available but 3 columns specified
CREATE VIEW
 a
---
 4
(1 row)

INSERT INTO er_q VALUES (1, 2);
DELETE FROM er_q;
UPDATE er_q SET q = 1;
----
ERROR:  "er_q" is a materialized view, not a table: it cannot be written to
LINE 1: INSERT INTO er_q VALUES (1, 2);
                    ^
ERROR:  "er_q" is a materialized view, not a table: it cannot be written to
LINE 1: DELETE FROM er_q;
                    ^
ERROR:  "er_q" is a materialized view, not a table: it cannot be written to
LINE 1: UPDATE er_q SET q = 1;
               ^

-- Two statements at once: the second fails, the first stands (PostgreSQL would undo it).
INSERT INTO er_t VALUES (5, 5, '5', NULL)\; SELECT 1 / 0;
SELECT k FROM er_t WHERE k = 5;
----
INSERT 0 1
ERROR:  division by zero
 k
---
(0 rows)

DROP TABLE er_t CASCADE;
SELECT * FROM er_t;
----
DROP TABLE
ERROR:  relation "er_t" does not exist
LINE 1: SELECT * FROM er_t;
                      ^
