CREATE TABLE ao_t (k int, v int);
CREATE MATERIALIZED VIEW ao_m AS SELECT count(*) AS n, sum(v) AS s FROM ao_t;
CREATE VIEW ao_now AS SELECT write_frontier - 1 AS t, read_frontier FROM mz_internal.mz_frontiers f JOIN mz_objects o ON f.object_id = o.id WHERE o.name = 'ao_t';
----
CREATE TABLE
CREATE MATERIALIZED VIEW
CREATE VIEW

INSERT INTO ao_t VALUES (1, 10);
SELECT t AS t1 FROM ao_now
\gset
INSERT INTO ao_t VALUES (2, 20);
SELECT t AS t2 FROM ao_now
\gset
DELETE FROM ao_t WHERE k = 1;
----
INSERT 0 1
INSERT 0 1
DELETE 1

SELECT k, v FROM ao_t AS OF :t1;
SELECT k, v FROM ao_t ORDER BY k AS OF :t2;
SELECT * FROM ao_m AS OF :t1;
SELECT * FROM ao_m AS OF :t2;
SELECT * FROM ao_m;
----
 k | v
---+----
 1 | 10
(1 row)
 k | v
---+----
 1 | 10
 2 | 20
(2 rows)
 n | s
---+----
 1 | 10
(1 row)
 n | s
---+----
 2 | 30
(1 row)
 n | s
---+----
 1 | 20
(1 row)

SELECT * FROM ao_m AS OF AT LEAST :t1;
SELECT k FROM ao_t AS OF AT LEAST 0;
----
 n | s
---+----
 1 | 20
(1 row)
 k
---
 2
(1 row)

SELECT k FROM ao_t AS OF 0;
SELECT k FROM ao_t AS OF -5;
SELECT k FROM ao_t AS OF 'then';
SELECT k FROM ao_t AS OF;
----
ERROR:  relation "ao_t" can be read from time <time> on, not at 0
HINT:  read at a later time; RETAIN HISTORY keeps more of it
ERROR:  syntax error at or near "-"
LINE 1: SELECT k FROM ao_t AS OF -5;
                                 ^
ERROR:  invalid input syntax for type timestamp with time zone: "then"
ERROR:  syntax error at end of input
LINE 1: SELECT k FROM ao_t AS OF;
                                ^

DROP TABLE ao_t CASCADE;
DROP VIEW ao_now;
----
DROP TABLE
DROP VIEW

-- A query that is asked once knows the time that it is asked about.
SELECT mz_now() > 1700000000000 AS later, mz_now()::text LIKE '1%' AS text;
----
 later | text
-------+------
 t     | t
(1 row)

CREATE TABLE ao_u (k int) WITH (RETAIN HISTORY FOR '1 day');
INSERT INTO ao_u VALUES (1);
SELECT (now() AT TIME ZONE 'UTC' + interval '1 ms')::text AS then
\gset
SELECT k FROM ao_u AS OF :'then';
SELECT k FROM ao_u AS OF AT LEAST TIMESTAMP '2020-01-01';
SELECT k FROM ao_u AS OF 'then';
SELECT k FROM ao_u AS OF :'then' ORDER BY k;
DROP TABLE ao_u;
----
CREATE TABLE
INSERT 0 1
 k
---
 1
(1 row)
 k
---
 1
(1 row)
ERROR:  invalid input syntax for type timestamp with time zone: "then"
ERROR:  syntax error at or near "ORDER BY"
HINT:  AS OF comes at the end of the query
DROP TABLE
