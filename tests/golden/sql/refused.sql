-- What cannot be maintained is refused, with the reason and what to do; nothing is left behind.
CREATE TABLE rf_a (k int, v int, d double precision);
CREATE TABLE rf_b (k int, w int);
INSERT INTO rf_a VALUES (1, 10, 0.5), (2, 20, 1.5), (2, 30, 2.5);
INSERT INTO rf_b VALUES (1, 7), (2, 8);
----
CREATE TABLE
CREATE TABLE
INSERT 0 3
INSERT 0 2

CREATE MATERIALIZED VIEW rf AS SELECT k, stddev(d) FROM rf_a GROUP BY k;
----
ERROR:  stddev(double precision) is not supported: it cannot be kept exactly as rows come and go
LINE 1: CREATE MATERIALIZED VIEW rf AS SELECT k, stddev(d) FROM rf_a...
                                                 ^
HINT:  cast to numeric, e.g. stddev(x::numeric)

CREATE MATERIALIZED VIEW rf AS SELECT k, variance(d) FROM rf_a GROUP BY k;
----
ERROR:  variance(double precision) is not supported: it cannot be kept exactly as rows come and go
LINE 1: CREATE MATERIALIZED VIEW rf AS SELECT k, variance(d) FROM rf...
                                                 ^
HINT:  cast to numeric, e.g. variance(x::numeric)

CREATE MATERIALIZED VIEW rf AS SELECT a.k FROM rf_a a LEFT JOIN rf_a b ON a.k = b.k AND mz_now() > b.v;
----
ERROR:  mz_now() in the condition of an outer join cannot be maintained
HINT:  filter one side in a subquery, or put the condition into WHERE

CREATE MATERIALIZED VIEW rf AS SELECT k FROM rf_a WHERE v > 1 OR mz_now() > v;
----
ERROR:  mz_now() cannot be used here: a view can be kept only if mz_now() is compared with an expression, in WHERE or HAVING, alone or among conditions joined by AND
LINE 1: ...IZED VIEW rf AS SELECT k FROM rf_a WHERE v > 1 OR mz_now() >...
                                                             ^
HINT:  compare it directly, e.g. mz_now() <= ts + interval '1 hour', with one of < <= = >= >

CREATE MATERIALIZED VIEW rf AS SELECT k, sum(v) OVER (ORDER BY v RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM rf_a;
----
ERROR:  RANGE with offsets is not supported
HINT:  use ROWS, or RANGE with UNBOUNDED

CREATE MATERIALIZED VIEW rf AS WITH RECURSIVE x(k) AS (SELECT k FROM rf_a UNION SELECT k + 1 FROM x WHERE k < 9) SELECT k FROM x;
----
ERROR:  WITH RECURSIVE is not supported
HINT:  use WITH MUTUALLY RECURSIVE name (column type, ...) AS (...)

CREATE MATERIALIZED VIEW rf AS SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY v) FROM rf_a GROUP BY k;
----
ERROR:  ordered-set aggregates: not supported
HINT:  use count, sum, avg, min or max

CREATE MATERIALIZED VIEW rf AS SELECT now() AS t, k FROM rf_a;
----
ERROR:  now is not supported here: its value changes with time, so a view over it could not be kept
LINE 1: CREATE MATERIALIZED VIEW rf AS SELECT now() AS t, k FROM rf_...
                                              ^
HINT:  for rows that come and go with time, compare mz_now() in WHERE; else write the value as a literal, or keep it in a table

CREATE MATERIALIZED VIEW rf AS SELECT name FROM mz_catalog.mz_objects;
----
ERROR:  a materialized view cannot read a system relation
HINT:  query it directly, or use a plain view

CREATE MATERIALIZED VIEW rf AS SELECT 1 AS one;
----
ERROR:  a view over constants has nothing to maintain
HINT:  put the rows into a table

CREATE MATERIALIZED VIEW rf IN CLUSTER elsewhere AS SELECT k FROM rf_a;
----
ERROR:  unknown cluster "elsewhere"
LINE 1: CREATE MATERIALIZED VIEW rf IN CLUSTER elsewhere AS SELECT k...
                                               ^
HINT:  SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one

CREATE MATERIALIZED VIEW rf WITH (FILLFACTOR = 70) AS SELECT k FROM rf_a;
----
ERROR:  options of materialized views other than REFRESH and RETAIN HISTORY are not supported
HINT:  supported: REFRESH ON COMMIT, REFRESH AT CREATION, REFRESH AT '<timestamp>', REFRESH EVERY '<interval>' [ALIGNED TO '<timestamp>'], RETAIN HISTORY FOR '<interval>'

-- Statements that there are not.
CREATE INDEX rf_i ON rf_a (k);
CREATE TABLE rf_c (k int PRIMARY KEY);
CREATE TABLE rf_c (k int DEFAULT 1 + 1);
CREATE TABLE rf_c (k uuid);
CREATE TEMPORARY TABLE rf_c (k int);
CREATE OR REPLACE TABLE rf_c (k int);
ALTER TABLE rf_a ADD COLUMN x int;
INSERT INTO rf_a VALUES (1) RETURNING k + 1;
INSERT INTO rf_a VALUES (1) ON CONFLICT DO NOTHING;
MOVE 1 FROM c;
VACUUM;
GRANT ALL ON rf_a TO PUBLIC WITH GRANT OPTION;
----
CREATE INDEX
ERROR:  PRIMARY KEY is not supported in CREATE TABLE
HINT:  only NOT NULL and DEFAULT are supported
ERROR:  DEFAULT of column "k" is to be computed, which is not supported
HINT:  use a constant, or a function of the session: 0, 'new', now(), current_user
ERROR:  type "uuid" is not supported
LINE 1: CREATE TABLE rf_c (k uuid);
                             ^
HINT:  supported: bigint, boolean, bytea, date, double precision, integer, interval, jsonb, numeric, smallint, text, timestamp, timestamp with time zone
ERROR:  temporary objects are not supported
HINT:  create it without TEMPORARY
ERROR:  only views can be replaced
HINT:  DROP the object first, then CREATE it
ERROR:  this ALTER TABLE is not supported
HINT:  supported: ALTER CLUSTER, ALTER CLUSTER REPLICA, ALTER CONNECTION, ALTER SECRET, ALTER ROLE, ALTER SYSTEM, and ALTER ... RENAME TO, SET SCHEMA, SET CLUSTER, SET (RETAIN HISTORY FOR '<interval>') and OWNER TO
ERROR:  RETURNING takes columns only
HINT:  return the columns, and compute with them afterwards
ERROR:  ON CONFLICT is not supported
HINT:  leave it out
ERROR:  MOVE is not supported
ERROR:  VACUUM is not supported
ERROR:  WITH GRANT OPTION, WITH ADMIN OPTION and GRANTED BY are not supported
HINT:  who owns something grants it; who has CREATEROLE grants roles

SHOW MATERIALIZED VIEWS;
DROP TABLE rf_a, rf_b;
----
 name | cluster | status | error
------+---------+--------+-------
(0 rows)
DROP TABLE
