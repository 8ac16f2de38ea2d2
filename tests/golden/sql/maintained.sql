-- Queries of every kind are kept right as rows come and go.
CREATE TABLE mt_a (k int, v int, t text);
CREATE TABLE mt_b (k int, w int);
INSERT INTO mt_a VALUES (1, 10, 'x'), (2, 20, 'y'), (2, 30, NULL), (NULL, 40, 'z');
INSERT INTO mt_b VALUES (1, 7), (2, 8), (3, 9);
CREATE MATERIALIZED VIEW mt_left AS SELECT mt_a.k, v, w FROM mt_a LEFT JOIN mt_b ON mt_a.k = mt_b.k AND w > 7;
CREATE MATERIALIZED VIEW mt_in AS SELECT v FROM mt_a WHERE k IN (SELECT k FROM mt_b WHERE w < 8) OR NOT EXISTS (SELECT 1 FROM mt_b WHERE mt_b.k = mt_a.k);
CREATE MATERIALIZED VIEW mt_top AS SELECT k, v FROM mt_a ORDER BY v DESC LIMIT 2;
CREATE MATERIALIZED VIEW mt_window AS SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n, sum(v) OVER (PARTITION BY k ORDER BY v) AS so_far FROM mt_a;
CREATE MATERIALIZED VIEW mt_lists AS SELECT k, string_agg(t, ',' ORDER BY v) AS ts, array_agg(v) AS vs FROM mt_a GROUP BY k;
CREATE MATERIALIZED VIEW mt_sets_of AS SELECT k, t, count(*) AS n FROM mt_a GROUP BY ROLLUP (k, t);
CREATE MATERIALIZED VIEW mt_reach AS WITH MUTUALLY RECURSIVE r (a int, b int) AS (SELECT k, w FROM mt_b UNION SELECT r.a, mt_b.w FROM r JOIN mt_b ON r.b = mt_b.k) SELECT a, b FROM r;
----
CREATE TABLE
CREATE TABLE
INSERT 0 4
INSERT 0 3
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW

SELECT * FROM mt_left ORDER BY v, w;
----
 k | v  | w
---+----+---
 1 | 10 |
 2 | 20 | 8
 2 | 30 | 8
   | 40 |
(4 rows)

SELECT * FROM mt_in ORDER BY v;
----
 v
----
 10
 40
(2 rows)

SELECT * FROM mt_top ORDER BY v;
----
 k | v
---+----
 2 | 30
   | 40
(2 rows)

SELECT * FROM mt_window ORDER BY k, v, n;
----
 k | v  | n | so_far
---+----+---+--------
 1 | 10 | 1 |     10
 2 | 20 | 1 |     20
 2 | 30 | 2 |     50
   | 40 | 1 |     40
(4 rows)

SELECT * FROM mt_lists ORDER BY k;
----
 k | ts |   vs
---+----+---------
 1 | x  | {10}
 2 | y  | {20,30}
   | z  | {40}
(3 rows)

SELECT * FROM mt_sets_of ORDER BY k, t, n;
----
 k | t | n
---+---+---
 1 | x | 1
 1 |   | 1
 2 | y | 1
 2 |   | 1
 2 |   | 2
   | z | 1
   |   | 1
   |   | 4
(8 rows)

SELECT * FROM mt_reach ORDER BY a, b;
----
 a | b
---+---
 1 | 7
 2 | 8
 3 | 9
(3 rows)

DELETE FROM mt_a WHERE v = 40;
UPDATE mt_b SET w = 1 WHERE k = 3;
INSERT INTO mt_a VALUES (3, 25, 'w'), (1, 10, 'x');
INSERT INTO mt_b VALUES (7, 2);
----
DELETE 1
UPDATE 1
INSERT 0 2
INSERT 0 1

SELECT * FROM mt_left ORDER BY v, w;
----
 k | v  | w
---+----+---
 1 | 10 |
 1 | 10 |
 2 | 20 | 8
 3 | 25 |
 2 | 30 | 8
(5 rows)

SELECT * FROM mt_in ORDER BY v;
----
 v
----
 10
 10
 25
(3 rows)

SELECT * FROM mt_top ORDER BY v;
----
 k | v
---+----
 3 | 25
 2 | 30
(2 rows)

SELECT * FROM mt_window ORDER BY k, v, n;
----
 k | v  | n | so_far
---+----+---+--------
 1 | 10 | 1 |     20
 1 | 10 | 2 |     20
 2 | 20 | 1 |     20
 2 | 30 | 2 |     50
 3 | 25 | 1 |     25
(5 rows)

SELECT * FROM mt_lists ORDER BY k;
----
 k | ts  |   vs
---+-----+---------
 1 | x,x | {10,10}
 2 | y   | {20,30}
 3 | w   | {25}
(3 rows)

SELECT * FROM mt_sets_of ORDER BY k, t, n;
----
 k | t | n
---+---+---
 1 | x | 2
 1 |   | 2
 2 | y | 1
 2 |   | 1
 2 |   | 2
 3 | w | 1
 3 |   | 1
   |   | 5
(8 rows)

SELECT * FROM mt_reach ORDER BY a, b;
----
 a | b
---+---
 1 | 2
 1 | 7
 1 | 8
 2 | 8
 3 | 1
 3 | 2
 3 | 7
 3 | 8
 7 | 2
 7 | 8
(10 rows)

-- Views of one meaning share what they keep, and outlive each other; one that is made again is new.
CREATE MATERIALIZED VIEW mt_left_again AS SELECT mt_a.k, v, w + 1 AS w FROM mt_a LEFT JOIN mt_b ON mt_a.k = mt_b.k AND w > 7;
DROP MATERIALIZED VIEW mt_left;
INSERT INTO mt_b VALUES (1, 70);
----
CREATE MATERIALIZED VIEW
DROP MATERIALIZED VIEW
INSERT 0 1

SELECT * FROM mt_left_again ORDER BY v, w;
----
 k | v  | w
---+----+----
 1 | 10 | 71
 1 | 10 | 71
 2 | 20 |  9
 3 | 25 |
 2 | 30 |  9
(5 rows)

CREATE MATERIALIZED VIEW mt_left AS SELECT mt_a.k, v, w FROM mt_a LEFT JOIN mt_b ON mt_a.k = mt_b.k AND w > 7;
DROP MATERIALIZED VIEW mt_left_again;
DELETE FROM mt_b WHERE k = 2;
----
CREATE MATERIALIZED VIEW
DROP MATERIALIZED VIEW
DELETE 1

SELECT * FROM mt_left ORDER BY v, w;
----
 k | v  | w
---+----+----
 1 | 10 | 70
 1 | 10 | 70
 2 | 20 |
 3 | 25 |
 2 | 30 |
(5 rows)

DROP MATERIALIZED VIEW mt_left;
DROP MATERIALIZED VIEW mt_reach;
CREATE MATERIALIZED VIEW mt_left AS SELECT mt_a.k, v, w FROM mt_a LEFT JOIN mt_b ON mt_a.k = mt_b.k AND w > 7;
CREATE MATERIALIZED VIEW mt_reach AS WITH MUTUALLY RECURSIVE r (a int, b int) AS (SELECT k, w FROM mt_b UNION SELECT r.a, mt_b.w FROM r JOIN mt_b ON r.b = mt_b.k) SELECT a, b FROM r;
INSERT INTO mt_b VALUES (2, 77);
----
DROP MATERIALIZED VIEW
DROP MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
INSERT 0 1

SELECT * FROM mt_left ORDER BY v, w;
----
 k | v  | w
---+----+----
 1 | 10 | 70
 1 | 10 | 70
 2 | 20 | 77
 3 | 25 |
 2 | 30 | 77
(5 rows)

SELECT * FROM mt_reach ORDER BY a, b;
----
 a | b
---+----
 1 |  2
 1 |  7
 1 | 70
 1 | 77
 2 | 77
 3 |  1
 3 |  2
 3 |  7
 3 | 70
 3 | 77
 7 |  2
 7 | 77
(12 rows)

-- A view may be replaced; what both need is kept. Not one that others read, nor one of another kind.
CREATE OR REPLACE MATERIALIZED VIEW mt_left AS SELECT mt_a.k, count(w) AS n FROM mt_a LEFT JOIN mt_b ON mt_a.k = mt_b.k AND w > 7 GROUP BY mt_a.k;
SELECT * FROM mt_left ORDER BY k;
CREATE OR REPLACE MATERIALIZED VIEW mt_new AS SELECT k FROM mt_b;
CREATE OR REPLACE VIEW mt_over AS SELECT n FROM mt_left;
CREATE OR REPLACE VIEW mt_over AS SELECT max(n) AS n FROM mt_left;
SELECT * FROM mt_over;
CREATE OR REPLACE MATERIALIZED VIEW mt_left AS SELECT k FROM mt_b;
CREATE OR REPLACE VIEW mt_new AS SELECT 1 AS n;
CREATE OR REPLACE VIEW mt_over AS SELECT n FROM mt_over;
CREATE OR REPLACE MATERIALIZED VIEW other.mt_new AS SELECT k FROM mt_b;
CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS mt_new AS SELECT 1 AS n;
CREATE MATERIALIZED VIEW mt_having AS SELECT k, count(*) AS n, max(w) AS w FROM mt_b GROUP BY k;
CREATE OR REPLACE MATERIALIZED VIEW mt_having AS SELECT k, count(*) AS n, max(w) AS w FROM mt_b GROUP BY k HAVING max(w) > 10;
INSERT INTO mt_b VALUES (2, 79);
SELECT * FROM mt_over;
SELECT * FROM mt_having ORDER BY k;
CREATE OR REPLACE MATERIALIZED VIEW mt_having AS SELECT k, max(w) + 1 AS more FROM mt_b GROUP BY k;
SELECT * FROM mt_having ORDER BY k;
DROP MATERIALIZED VIEW mt_having;
SELECT count(*) FROM mt_new;
----
CREATE MATERIALIZED VIEW
 k | n
---+---
 1 | 2
 2 | 2
 3 | 0
(3 rows)
CREATE MATERIALIZED VIEW
CREATE VIEW
CREATE VIEW
 n
---
 2
(1 row)
ERROR:  cannot replace mt_left because other objects depend on it: mt_over
HINT:  drop them first, or create this one under another name
ERROR:  "mt_new" is a materialized view, not a view
LINE 1: CREATE OR REPLACE VIEW mt_new AS SELECT 1 AS n;
                               ^
ERROR:  "mt_over" cannot be replaced by what reads it
ERROR:  schema "other" does not exist
LINE 1: CREATE OR REPLACE MATERIALIZED VIEW other.mt_new AS SELECT k...
                                            ^
ERROR:  syntax error at or near "NOT"
LINE 1: CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS mt_new AS ...
                                               ^
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
INSERT 0 1
 n
---
 4
(1 row)
 k | n | w
---+---+----
 1 | 2 | 70
 2 | 2 | 79
(2 rows)
CREATE MATERIALIZED VIEW
 k | more
---+------
 1 |   71
 2 |   80
 3 |    2
 7 |    3
(4 rows)
DROP MATERIALIZED VIEW
 count
-------
     6
(1 row)

-- What a recursion reads is its own, even if other views have the same.
CREATE MATERIALIZED VIEW mt_most AS SELECT max(m) AS m FROM (SELECT k, max(w) AS m FROM mt_b GROUP BY k) x;
CREATE MATERIALIZED VIEW mt_both AS WITH MUTUALLY RECURSIVE r (a int, b int) AS (SELECT k, w FROM mt_b UNION SELECT r.a, d.m FROM r JOIN (SELECT k, max(w) AS m FROM mt_b GROUP BY k) d ON r.b = d.k) SELECT r.a, r.b, d.m FROM r JOIN (SELECT k, max(w) AS m FROM mt_b GROUP BY k) d ON r.a = d.k;
SELECT * FROM mt_most;
SELECT * FROM mt_both ORDER BY a, b;
DROP MATERIALIZED VIEW mt_most;
INSERT INTO mt_b VALUES (79, 80);
SELECT * FROM mt_both ORDER BY a, b;
----
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
 m
----
 79
(1 row)
 a | b  | m
---+----+----
 1 |  2 | 70
 1 |  7 | 70
 1 | 70 | 70
 1 | 79 | 70
 2 | 77 | 79
 2 | 79 | 79
 3 |  1 |  1
 3 | 70 |  1
 7 |  2 |  2
 7 | 79 |  2
(10 rows)
DROP MATERIALIZED VIEW
INSERT 0 1
 a  | b  | m
----+----+----
  1 |  2 | 70
  1 |  7 | 70
  1 | 70 | 70
  1 | 79 | 70
  1 | 80 | 70
  2 | 77 | 79
  2 | 79 | 79
  2 | 80 | 79
  3 |  1 |  1
  3 | 70 |  1
  7 |  2 |  2
  7 | 79 |  2
  7 | 80 |  2
 79 | 80 | 80
(14 rows)

DROP TABLE mt_a, mt_b CASCADE;
----
DROP TABLE
