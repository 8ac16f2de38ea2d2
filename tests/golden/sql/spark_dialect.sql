-- A session may ask in Spark SQL; what it makes means the same to all others.
CREATE TABLE sp_t (k int, v text, many int[]);
INSERT INTO sp_t VALUES (1, 'one', '{1,2}'), (2, 'two', '{3}'), (3, NULL, '{}');
SET dialect = 'hive';
SET dialect = 'spark';
SHOW dialect;
----
CREATE TABLE
INSERT 0 3
ERROR:  invalid value for parameter "dialect": "hive"
HINT:  available: postgres, spark
SET
 dialect
---------
 spark
(1 row)

SELECT k / 2 AS half, k div 2 AS whole, nvl(v, "none") AS v FROM sp_t ORDER BY k;
SELECT `V`, 'it''s' AS s FROM `sp_t` ORDER BY v;
SELECT k, m FROM sp_t LATERAL VIEW explode(many) e AS m WHERE NOT m <=> 2 ORDER BY k, m;
SELECT cast(2.7 AS int), count_if(k > 1) AS n FROM sp_t AS OF AT LEAST 0;
VALUES (1, "a;b");
----
 half | whole |  v
------+-------+------
  0.5 |     0 | one
    1 |     1 | two
  1.5 |     1 | none
(3 rows)
  v  |  s
-----+------
     | it's
 one | it's
 two | it's
(3 rows)
 k | m
---+---
 1 | 1
 2 | 3
(2 rows)
 int4 | n
------+---
    2 | 2
(1 row)
 column1 | column2
---------+---------
       1 | a;b
(1 row)

-- Views, EXPLAIN, COPY, INSERT, UPDATE, cursors and prepared statements.
CREATE MATERIALIZED VIEW "sp_Halves" AS SELECT `k` / 2 AS half, concat(v, "!") AS c FROM sp_t;
CREATE VIEW sp_v AS SELECT count_if(k > 1) AS n, max(nvl(v, "`;)'")) AS m FROM sp_t;
EXPLAIN OPTIMIZED PLAN FOR SELECT k / 2 AS half FROM sp_t;
COPY (SELECT k div 2 FROM sp_t ORDER BY k) TO STDOUT;
INSERT INTO sp_t SELECT k div 1 + 10, concat(v, "+"), many FROM sp_t WHERE isnotnull(v);
UPDATE sp_t SET v = nvl(v, "was null") WHERE v <=> NULL;
BEGIN;
DECLARE c CURSOR FOR SELECT k / 2 AS half FROM sp_t WHERE k = 11;
FETCH 1 c;
COMMIT;
PREPARE sp_p (int) AS SELECT k / $1 AS q FROM sp_t WHERE k = 3;
----
CREATE MATERIALIZED VIEW
CREATE VIEW
                 plan
--------------------------------------
 Project ((#0::double precision / 2))
   Project (#0)
     Get sp_t (k, v, many)
(3 rows)
0
1
1
INSERT 0 2
UPDATE 1
BEGIN
DECLARE CURSOR
 half
------
  5.5
(1 row)
COMMIT
PREPARE

BEGIN;
DECLARE c CURSOR FOR SUBSCRIBE (SELECT count_if(k > 2) AS n FROM sp_t);
FETCH 1 c;
COMMIT;
----
BEGIN
DECLARE CURSOR
 mz_timestamp  | mz_diff | n
---------------+---------+---
 <time> |       1 | 3
(1 row)
COMMIT

-- Errors say where, and what is not there is refused by its name.
SELECT nvl2(k, 1, 2) FROM sp_t;
SELECT k FROM sp_t WHERE initcap(v) = 'x';
SELECT k, nowhere FROM sp_t;
CREATE VIEW sp_w AS SELECT k k2 k3 FROM sp_t;
SELECT many[0] FROM sp_t;
SELECT k / (k - 3) FROM sp_t;
----
ERROR:  function nvl2(integer, integer, integer) does not exist
LINE 1: SELECT nvl2(k, 1, 2) FROM sp_t;
               ^
HINT:  it is none of the functions that Tidemark maintains: <functions>
ERROR:  initcap is not supported in Spark's dialect
LINE 1: SELECT k FROM sp_t WHERE initcap(v) = 'x';
                                 ^
HINT:  Spark's capitalises after blanks only
ERROR:  column "nowhere" does not exist
LINE 1: SELECT k, nowhere FROM sp_t;
                  ^
ERROR:  syntax error at or near "k3"
LINE 1: CREATE VIEW sp_w AS SELECT k k2 k3 FROM sp_t;
                                        ^
ERROR:  [ ] is not supported in Spark's dialect
LINE 1: SELECT many[0] FROM sp_t;
               ^
HINT:  there, the first element is [0]
ERROR:  division by zero

-- In another dialect all of that stays what it is.
RESET dialect;
SHOW dialect;
EXECUTE sp_p (2);
SELECT * FROM "sp_Halves" ORDER BY half;
SELECT * FROM sp_v;
SHOW CREATE MATERIALIZED VIEW "sp_Halves";
SELECT pg_get_viewdef('sp_v'::regclass);
ALTER VIEW sp_v RENAME TO sp_w;
SHOW CREATE VIEW sp_w;
VERIFY "sp_Halves";
----
RESET
 dialect
----------
 postgres
(1 row)
  q
-----
 1.5
(1 row)
 half |     c
------+-----------
  0.5 | one!
    1 | two!
  1.5 | was null!
  5.5 | one+!
    6 | two+!
(5 rows)
 n |    m
---+----------
 4 | was null
(1 row)
   name    |                                          create_sql
-----------+-----------------------------------------------------------------------------------------------
 sp_Halves | CREATE MATERIALIZED VIEW "sp_Halves" AS SELECT `k` / 2 AS half, concat(v, "!") AS c FROM sp_t
(1 row)
                          pg_get_viewdef
-------------------------------------------------------------------
  SELECT count_if(k > 1) AS n, max(nvl(v, "`;)'")) AS m FROM sp_t;
(1 row)
ALTER VIEW
 name |                                     create_sql
------+-------------------------------------------------------------------------------------
 sp_w | CREATE VIEW sp_w AS SELECT count_if(k > 1) AS n, max(nvl(v, "`;)'")) AS m FROM sp_t
(1 row)
NOTICE:  verified at <time>: 5 rows, no difference
 mz_in_view | mz_in_query | mz_error | half | c
------------+-------------+----------+------+---
(0 rows)

DROP TABLE sp_t CASCADE;
----
DROP TABLE
