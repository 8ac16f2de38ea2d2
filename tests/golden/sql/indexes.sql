CREATE TABLE ix_t (k int, g text, v int, doc jsonb);
INSERT INTO ix_t VALUES (1, 'a', 10, '{}'), (2, 'b', 20, NULL), (2, 'b', 20, NULL), (NULL, 'c', 30, NULL);
CREATE MATERIALIZED VIEW ix_m AS SELECT g, count(*) AS n FROM ix_t GROUP BY g;
CREATE VIEW ix_v AS SELECT k FROM ix_t;
----
CREATE TABLE
INSERT 0 4
CREATE MATERIALIZED VIEW
CREATE VIEW

CREATE INDEX ix_k ON ix_t (k);
CREATE INDEX ON ix_t (g, v);
CREATE INDEX ON ix_t (g, v);
CREATE DEFAULT INDEX ON ix_m;
CREATE DEFAULT INDEX IN CLUSTER quickstart ON ix_t;
SHOW INDEXES ON ix_t;
SHOW INDEXES ON ix_m;
SELECT i.name, o.name AS on, position, c.index_position FROM mz_indexes i JOIN mz_objects o ON i.on_id = o.id JOIN mz_index_columns c ON c.index_id = i.id JOIN mz_columns m ON m.id = o.id AND m.position = c.on_position WHERE i.name LIKE 'ix!_%' ESCAPE '!' ORDER BY i.name, c.index_position;
----
CREATE INDEX
CREATE INDEX
CREATE INDEX
CREATE INDEX
CREATE INDEX
       name       |  on  |  cluster   |   key
------------------+------+------------+---------
 ix_k             | ix_t | quickstart | k
 ix_t_g_v_idx     | ix_t | quickstart | g, v
 ix_t_g_v_idx1    | ix_t | quickstart | g, v
 ix_t_primary_idx | ix_t | quickstart | k, g, v
(4 rows)
       name       |  on  |  cluster   | key
------------------+------+------------+-----
 ix_m_primary_idx | ix_m | quickstart | g
(1 row)
       name       |  on  | position | index_position
------------------+------+----------+----------------
 ix_k             | ix_t |        1 |              1
 ix_m_primary_idx | ix_m |        1 |              1
 ix_t_g_v_idx     | ix_t |        2 |              1
 ix_t_g_v_idx     | ix_t |        3 |              2
 ix_t_g_v_idx1    | ix_t |        2 |              1
 ix_t_g_v_idx1    | ix_t |        3 |              2
 ix_t_primary_idx | ix_t |        1 |              1
 ix_t_primary_idx | ix_t |        2 |              2
 ix_t_primary_idx | ix_t |        3 |              3
(9 rows)

-- What is found, and where.
SELECT * FROM ix_t WHERE k = 2;
SELECT g, v FROM ix_t WHERE k IN (1, 2, 3) ORDER BY v DESC, g LIMIT 2;
SELECT * FROM ix_t WHERE k IS NULL;
SELECT n FROM ix_m WHERE g = 'b';
SELECT count(*) FROM ix_t WHERE g = 'b' AND v = 20;
----
 k | g | v  | doc
---+---+----+-----
 2 | b | 20 |
 2 | b | 20 |
(2 rows)
 g | v
---+----
 b | 20
 b | 20
(2 rows)
 k | g | v  | doc
---+---+----+-----
   | c | 30 |
(1 row)
 n
---
 2
(1 row)
 count
-------
     2
(1 row)

EXPLAIN SELECT * FROM ix_t WHERE k = 2;
EXPLAIN SELECT v FROM ix_t WHERE 2 = k OR k = 3 ORDER BY v LIMIT 1;
EXPLAIN SELECT v FROM ix_t WHERE v > 10;
EXPLAIN SELECT count(*) FROM ix_t, ix_m WHERE ix_t.g = ix_m.g AND k = 5;
EXPLAIN SELECT name FROM mz_objects;
EXPLAIN SELECT 1;
----
                                 plan
----------------------------------------------------------------------
 Project (#0, #1, #2, #3)
   Filter (#0 = 2)
     Get ix_t (k, g, v, doc)
 Answered without Spark: ix_t looked up in index ix_k by (k), one key
(4 rows)
                                plan
---------------------------------------------------------------------
 Finish order by (#0) limit 1
   Project (#2)
     Filter ((2 = #0) or (#0 = 3))
       Get ix_t (k, g, v, doc)
 Answered without Spark: ix_t looked up in index ix_k by (k), 2 keys
(5 rows)
                      plan
------------------------------------------------
 Project (#2)
   Filter (#2 > 10)
     Get ix_t (k, g, v, doc)
 Answered without Spark: ix_t read, it is small
(4 rows)
                      plan
------------------------------------------------
 Project (#0)
   Reduce group by () aggregates (count(*))
     Filter ((#1 = #4) and (#0 = 5))
       Join on true
         Get ix_t (k, g, v, doc)
         Get ix_m (g, n)
 Answered by Spark:
   ix_t looked up in index ix_k by (k), one key
   ix_m read, it is small
(9 rows)
                                           plan
-------------------------------------------------------------------------------------------
 Project (#1)
   Get mz_catalog.mz_objects (id, name, type, create_sql, cluster_id, schema_id, owner_id)
 Answered without Spark: mz_catalog.mz_objects, which control knows
(3 rows)
        plan
---------------------
 Project (1)
   Constant (1 rows)
(2 rows)

-- Look-ups see what was written before them.
INSERT INTO ix_t VALUES (2, 'd', 40, NULL);
SELECT g, v FROM ix_t WHERE k = 2 ORDER BY v;
DELETE FROM ix_t WHERE v = 20;
SELECT g, v FROM ix_t WHERE k = 2 ORDER BY v;
UPDATE ix_t SET k = 7 WHERE k = 2;
SELECT g, v FROM ix_t WHERE k IN (2, 7);
----
INSERT 0 1
 g | v
---+----
 b | 20
 b | 20
 d | 40
(3 rows)
DELETE 2
 g | v
---+----
 d | 40
(1 row)
UPDATE 1
 g | v
---+----
 d | 40
(1 row)

-- What is refused.
CREATE INDEX ix_k ON ix_t (v);
CREATE INDEX IF NOT EXISTS ix_k ON ix_t (v);
CREATE INDEX ix_bad ON ix_t (none);
CREATE INDEX ix_bad ON ix_t (k, k);
CREATE INDEX ix_bad ON ix_t (doc);
CREATE INDEX ix_bad ON ix_t (k + 1);
CREATE INDEX ix_bad ON ix_v (k);
CREATE INDEX ix_bad ON ix_none (k);
CREATE INDEX ix_bad IN CLUSTER elsewhere ON ix_t (k);
CREATE INDEX ix_bad ON ix_k (k);
SELECT * FROM ix_k;
DROP TABLE ix_k;
----
ERROR:  index "ix_k" already exists
NOTICE:  index "ix_k" already exists, skipping
CREATE INDEX
ERROR:  column "none" does not exist
LINE 1: CREATE INDEX ix_bad ON ix_t (none);
                                     ^
ERROR:  column "k" is in the key twice
ERROR:  column "doc" is jsonb, which cannot be looked up by
HINT:  index a column of a plain type, such as text or bigint
ERROR:  an index is by plain columns, not by expressions or in an order
HINT:  create a materialized view that has the expression as a column, and index that
ERROR:  cannot index "ix_v": a view is not stored
LINE 1: CREATE INDEX ix_bad ON ix_v (k);
                               ^
HINT:  create a materialized view, and index that
ERROR:  relation "ix_none" does not exist
LINE 1: CREATE INDEX ix_bad ON ix_none (k);
                               ^
ERROR:  unknown cluster "elsewhere"
LINE 1: CREATE INDEX ix_bad IN CLUSTER elsewhere ON ix_t (k);
                                       ^
HINT:  SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one
ERROR:  "ix_k" is an index, not a relation: it cannot be read
LINE 1: CREATE INDEX ix_bad ON ix_k (k);
                               ^
ERROR:  "ix_k" is an index, not a relation: it cannot be read
LINE 1: SELECT * FROM ix_k;
                      ^
ERROR:  "ix_k" is not a table
LINE 1: DROP TABLE ix_k;
                   ^

-- The error of a view fails its look-ups, too.
CREATE MATERIALIZED VIEW ix_e AS SELECT k, 100 / (v - 30) AS q FROM ix_t;
CREATE INDEX ix_e_k ON ix_e (k);
SELECT q FROM ix_e WHERE k = 1;
DELETE FROM ix_t WHERE v = 30;
SELECT q FROM ix_e WHERE k = 1;
DROP MATERIALIZED VIEW ix_e;
----
CREATE MATERIALIZED VIEW
CREATE INDEX
ERROR:  division by zero in (100 / (v - 30)) where v = 30
DELETE 1
 q
----
 -5
(1 row)
DROP MATERIALIZED VIEW

-- How much a client takes.
SHOW max_result_size;
SET max_result_size = '100 bytes';
SET max_result_size = '20B';
SELECT * FROM ix_t;
SELECT k FROM ix_t ORDER BY k LIMIT 1;
SELECT a.k, b.k FROM ix_t a, ix_t b;
RESET max_result_size;
SELECT a.k, b.k FROM ix_t a, ix_t b ORDER BY 1, 2;
----
 max_result_size
-----------------
 1GB
(1 row)
ERROR:  invalid value for parameter "max_result_size": "100 bytes"
HINT:  a number of bytes, or 512kB, 64MB, 1GB
SET
ERROR:  the result is larger than max_result_size allows (20 bytes)
HINT:  ask for less with LIMIT or WHERE, SUBSCRIBE, read with the Spark data source, or SET max_result_size
 k
---
 1
(1 row)
ERROR:  the result is larger than max_result_size allows (20 bytes)
HINT:  ask for less with LIMIT or WHERE, SUBSCRIBE, read with the Spark data source, or SET max_result_size
RESET
 k | k
---+---
 1 | 1
 1 | 7
 7 | 1
 7 | 7
(4 rows)

DROP INDEX ix_k;
DROP INDEX IF EXISTS ix_k;
SHOW CREATE INDEX ix_t_g_v_idx;
DROP VIEW ix_v;
DROP TABLE ix_t;
DROP MATERIALIZED VIEW ix_m;
DROP TABLE ix_t;
SHOW INDEXES;
----
DROP INDEX
NOTICE:  index "ix_k" does not exist, skipping
DROP INDEX
     name     |         create_sql
--------------+-----------------------------
 ix_t_g_v_idx | CREATE INDEX ON ix_t (g, v)
(1 row)
DROP VIEW
ERROR:  cannot drop ix_t because other objects depend on it: ix_m
HINT:  use DROP ... CASCADE to drop them too
DROP MATERIALIZED VIEW
DROP TABLE
 name | on | cluster | key
------+----+---------+-----
(0 rows)
