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

CREATE MATERIALIZED VIEW rf AS SELECT rf_a.k, w FROM rf_a LEFT JOIN rf_b ON rf_a.k = rf_b.k;
----
ERROR:  LEFT JOIN is not supported
HINT:  use an inner JOIN; outer joins cannot be maintained yet

CREATE MATERIALIZED VIEW rf AS SELECT rf_a.k FROM rf_a FULL OUTER JOIN rf_b ON rf_a.k = rf_b.k;
----
ERROR:  FULL JOIN is not supported
HINT:  use an inner JOIN; outer joins cannot be maintained yet

CREATE MATERIALIZED VIEW rf AS SELECT k, row_number() OVER (PARTITION BY k ORDER BY v) FROM rf_a;
----
ERROR:  window functions: not supported
HINT:  aggregate with GROUP BY and join the result instead

CREATE MATERIALIZED VIEW rf AS SELECT k FROM rf_a WHERE k IN (SELECT k FROM rf_b);
----
ERROR:  IN (SELECT ...) is not supported
HINT:  join with a SELECT DISTINCT of the keys instead

CREATE MATERIALIZED VIEW rf AS SELECT k FROM rf_a WHERE EXISTS (SELECT 1 FROM rf_b);
----
ERROR:  EXISTS: not supported
HINT:  join with a SELECT DISTINCT of the keys instead

CREATE MATERIALIZED VIEW rf AS SELECT k, (SELECT max(w) FROM rf_b) FROM rf_a;
----
ERROR:  subqueries in expressions: not supported
HINT:  write the subquery in FROM and join with it

CREATE MATERIALIZED VIEW rf AS SELECT k FROM rf_a ORDER BY k LIMIT 1;
----
ERROR:  LIMIT and OFFSET in a view are not supported
HINT:  limit the query that reads it instead

CREATE MATERIALIZED VIEW rf AS SELECT k FROM rf_a LIMIT 1;
----
ERROR:  LIMIT and OFFSET in a view are not supported
HINT:  limit the query that reads it instead

CREATE MATERIALIZED VIEW rf AS
  SELECT s.n, w FROM (SELECT k, count(*) AS n FROM rf_a GROUP BY k) s JOIN rf_b ON s.k = rf_b.k;
----
ERROR:  a GROUP BY or DISTINCT below another join or GROUP BY cannot be maintained yet
HINT:  make the inner query a materialized view of its own and select from that

CREATE MATERIALIZED VIEW rf AS SELECT n, count(*) FROM (SELECT k, count(*) AS n FROM rf_a GROUP BY k) s GROUP BY n;
----
ERROR:  a GROUP BY or DISTINCT below another join or GROUP BY cannot be maintained yet
HINT:  make the inner query a materialized view of its own and select from that

CREATE MATERIALIZED VIEW rf AS SELECT k, sum(d) FROM rf_a GROUP BY k;
----
ERROR:  sum(double precision) is not supported: it cannot be kept exactly as rows come and go
HINT:  cast to numeric, e.g. sum(x::numeric)

CREATE MATERIALIZED VIEW rf AS SELECT k, avg(d) FROM rf_a GROUP BY k;
----
ERROR:  avg(double precision) is not supported: it cannot be kept exactly as rows come and go
HINT:  cast to numeric, e.g. avg(x::numeric)

CREATE MATERIALIZED VIEW rf AS SELECT k, count(DISTINCT v) FROM rf_a GROUP BY k;
----
ERROR:  DISTINCT inside an aggregate: not supported
HINT:  aggregate over a subquery, e.g. SELECT count(*) FROM (SELECT DISTINCT x FROM t)

CREATE MATERIALIZED VIEW rf AS SELECT k, string_agg(v::text, ',') FROM rf_a GROUP BY k;
----
ERROR:  function string_agg(text, unknown) does not exist
HINT:  it is none of the functions that Tidemark maintains: <functions>

CREATE MATERIALIZED VIEW rf AS SELECT k FROM rf_a UNION ALL SELECT k FROM rf_b;
----
ERROR:  UNION is not supported
HINT:  create a view per part and query them one by one

CREATE MATERIALIZED VIEW rf AS SELECT k FROM rf_a EXCEPT SELECT k FROM rf_b;
----
ERROR:  EXCEPT is not supported
HINT:  create a view per part and query them one by one

CREATE MATERIALIZED VIEW rf AS WITH x AS (SELECT k FROM rf_a) SELECT count(*) AS n FROM x;
SELECT * FROM rf;
DROP MATERIALIZED VIEW rf;
----
CREATE MATERIALIZED VIEW
 n
---
 3
(1 row)
DROP MATERIALIZED VIEW

CREATE MATERIALIZED VIEW rf AS SELECT a.k FROM rf_a a JOIN rf_b b ON a.k < b.k;
----
ERROR:  every join of a maintained view needs an equality between columns of its two sides
HINT:  join ON a.x = b.y; to join on an expression, make it a column of a materialized view first

CREATE MATERIALIZED VIEW rf AS SELECT a.k FROM rf_a a CROSS JOIN rf_b b;
----
ERROR:  every join of a maintained view needs an equality between columns of its two sides
HINT:  join ON a.x = b.y; to join on an expression, make it a column of a materialized view first

CREATE MATERIALIZED VIEW rf AS SELECT now() AS t, k FROM rf_a;
----
ERROR:  now is not supported here: its value changes with time, so a view over it could not be kept
HINT:  write the value as a literal, or keep it in a table

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
HINT:  the only one is quickstart

CREATE MATERIALIZED VIEW rf WITH (REFRESH EVERY '1s') AS SELECT k FROM rf_a;
----
ERROR:  options of CREATE MATERIALIZED VIEW are not supported
HINT:  leave WITH (...) out

-- The same as one-off queries.
SELECT rf_a.k, w FROM rf_a LEFT JOIN rf_b ON rf_a.k = rf_b.k;
----
ERROR:  LEFT JOIN is not supported
HINT:  use an inner JOIN; outer joins cannot be maintained yet

SELECT k FROM rf_a WHERE k IN (SELECT k FROM rf_b);
----
ERROR:  IN (SELECT ...) is not supported
HINT:  join with a SELECT DISTINCT of the keys instead

SELECT k, row_number() OVER (ORDER BY k) FROM rf_a;
----
ERROR:  window functions: not supported
HINT:  aggregate with GROUP BY and join the result instead

SELECT k, sum(d) FROM rf_a GROUP BY k ORDER BY k LIMIT 1;
----
ERROR:  sum(double precision) is not supported: it cannot be kept exactly as rows come and go
HINT:  cast to numeric, e.g. sum(x::numeric)

SELECT k, count(DISTINCT v) FROM rf_a GROUP BY k;
----
ERROR:  DISTINCT inside an aggregate: not supported
HINT:  aggregate over a subquery, e.g. SELECT count(*) FROM (SELECT DISTINCT x FROM t)

SELECT s.n, w FROM (SELECT k, count(*) AS n FROM rf_a GROUP BY k) s JOIN rf_b ON s.k = rf_b.k ORDER BY w;
----
 n | w
---+---
 1 | 7
 2 | 8
(2 rows)

SELECT a.k, b.w FROM rf_a a JOIN rf_b b ON a.k < b.k;
----
 k | w
---+---
 1 | 8
(1 row)

SELECT k FROM rf_a UNION ALL SELECT k FROM rf_b;
----
ERROR:  UNION is not supported
HINT:  create a view per part and query them one by one

-- Statements that there are not.
CREATE INDEX rf_i ON rf_a (k);
CREATE TABLE rf_c AS SELECT 1;
CREATE TABLE rf_c (k int PRIMARY KEY);
CREATE TABLE rf_c (k int DEFAULT 1);
CREATE TABLE rf_c (k uuid);
CREATE TEMPORARY TABLE rf_c (k int);
CREATE OR REPLACE VIEW rf_c AS SELECT 1 AS a;
ALTER TABLE rf_a ADD COLUMN x int;
TRUNCATE rf_a;
INSERT INTO rf_a VALUES (1) RETURNING k;
INSERT INTO rf_a VALUES (1) ON CONFLICT DO NOTHING;
UPDATE rf_a SET v = w FROM rf_b WHERE rf_a.k = rf_b.k;
DELETE FROM rf_a USING rf_b WHERE rf_a.k = rf_b.k;
COPY rf_a FROM STDIN;
SUBSCRIBE (SELECT k FROM rf_a);
DECLARE c CURSOR FOR SELECT 1;
VACUUM;
GRANT ALL ON rf_a TO PUBLIC;
----
ERROR:  CREATE INDEX is not supported
HINT:  supported: CREATE TABLE, SOURCE, VIEW, MATERIALIZED VIEW, CONNECTION, SECRET, SINK
ERROR:  CREATE TABLE AS is not supported
HINT:  CREATE TABLE, then INSERT
ERROR:  PRIMARY KEY is not supported in CREATE TABLE
HINT:  only NOT NULL is supported
ERROR:  DEFAULT is not supported in CREATE TABLE
HINT:  only NOT NULL is supported
ERROR:  type "uuid" is not supported
HINT:  supported: bigint, boolean, bytea, date, double precision, integer, jsonb, numeric, smallint, text, timestamp, timestamp with time zone
ERROR:  temporary objects are not supported
HINT:  create it without TEMPORARY
ERROR:  CREATE OR REPLACE is not supported
HINT:  DROP the object first, then CREATE it
ERROR:  ALTER is not supported
ERROR:  TRUNCATE is not supported
ERROR:  RETURNING is not supported
HINT:  SELECT the rows afterwards
ERROR:  DEFAULT VALUES and ON CONFLICT are not supported
HINT:  leave it out
ERROR:  UPDATE ... FROM is not supported
HINT:  use a condition on the table alone
ERROR:  DELETE ... USING is not supported
HINT:  use a condition on the table alone
ERROR:  COPY ... FROM is not supported
HINT:  use INSERT
ERROR:  SUBSCRIBE to a query is not supported yet
HINT:  create a materialized view of the query and SUBSCRIBE to that
ERROR:  DECLARE is not supported
ERROR:  VACUUM is not supported
ERROR:  GRANT is not supported

SHOW MATERIALIZED VIEWS;
DROP TABLE rf_a, rf_b;
----
 name
------
(0 rows)
DROP TABLE
