CREATE TABLE vf_t (k int, v int, d double precision);
CREATE MATERIALIZED VIEW vf_sums AS SELECT k % 3 AS g, count(*) AS n, sum(v) AS s FROM vf_t GROUP BY k % 3;
CREATE MATERIALIZED VIEW vf_rows AS SELECT * FROM vf_t WHERE v IS DISTINCT FROM 5;
CREATE MATERIALIZED VIEW vf_ratio AS SELECT k, 100 / v AS r FROM vf_t;
CREATE MATERIALIZED VIEW vf_up AS WITH MUTUALLY RECURSIVE up (k int) AS (SELECT k FROM vf_t UNION SELECT k + 1 FROM up WHERE k < 20) SELECT k FROM up;
CREATE VIEW vf_plain AS SELECT k FROM vf_t;
CREATE VIEW vf_now AS SELECT write_frontier - 1 AS t FROM mz_internal.mz_frontiers f JOIN mz_objects o ON f.object_id = o.id WHERE o.name = 'vf_t';
----
CREATE TABLE
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE VIEW
CREATE VIEW

INSERT INTO vf_t SELECT g, g * 7 + 1, g / 2.0 FROM generate_series(1, 10) AS g;
INSERT INTO vf_t VALUES (11, NULL, 'NaN'), (11, NULL, 'NaN'), (12, NULL, '-0');
SELECT (SELECT count(*) FROM vf_sums) AS sums, (SELECT count(*) FROM vf_rows) AS rows, (SELECT count(*) FROM vf_up) AS up, (SELECT count(*) FROM vf_ratio) AS ratio;
SELECT t AS before FROM vf_now
\gset
----
INSERT 0 10
INSERT 0 3
 sums | rows | up | ratio
------+------+----+-------
    3 |   13 | 20 |    13
(1 row)

-- No rows: no difference. The verdict is a notice.
VERIFY MATERIALIZED VIEW vf_sums;
VERIFY MATERIALIZED VIEW vf_rows AS OF :before;
VERIFY MATERIALIZED VIEW vf_up;
VERIFY MATERIALIZED VIEW vf_ratio;
----
NOTICE:  verified at <time>: 3 rows, no difference
 mz_in_view | mz_in_query | mz_error | g | n | s
------------+-------------+----------+---+---+---
(0 rows)
NOTICE:  verified at <time>: 13 rows, no difference
 mz_in_view | mz_in_query | mz_error | k | v | d
------------+-------------+----------+---+---+---
(0 rows)
NOTICE:  verified at <time>: 20 rows, no difference
 mz_in_view | mz_in_query | mz_error | k
------------+-------------+----------+---
(0 rows)
NOTICE:  verified at <time>: 13 rows, no difference
 mz_in_view | mz_in_query | mz_error | k | r
------------+-------------+----------+---+---
(0 rows)

-- A view in error is right if its query fails, too.
INSERT INTO vf_t VALUES (13, 0, 0);
SELECT count(*) FROM vf_ratio;
SELECT t AS failing FROM vf_now
\gset
VERIFY MATERIALIZED VIEW vf_ratio AS OF :failing;
DELETE FROM vf_t WHERE k = 13;
SELECT count(*) FROM vf_ratio;
SELECT t AS after FROM vf_now
\gset
VERIFY MATERIALIZED VIEW vf_ratio AS OF :after;
VERIFY MATERIALIZED VIEW vf_ratio AS OF AT LEAST :before;
----
INSERT 0 1
ERROR:  division by zero in (100 / v) where v = 0
NOTICE:  verified at <time>: the view is in error, and so is its query
 mz_in_view | mz_in_query | mz_error | k | r
------------+-------------+----------+---+---
(0 rows)
DELETE 1
 count
-------
    13
(1 row)
NOTICE:  verified at <time>: 13 rows, no difference
 mz_in_view | mz_in_query | mz_error | k | r
------------+-------------+----------+---+---
(0 rows)
NOTICE:  verified at <time>: 13 rows, no difference
 mz_in_view | mz_in_query | mz_error | k | r
------------+-------------+----------+---+---
(0 rows)

-- The verdicts are kept.
SELECT o.name, rows, missing, unexpected, verdict FROM mz_internal.mz_verifications v JOIN mz_objects o ON v.object_id = o.id WHERE o.name LIKE 'vf_%' ORDER BY verified_at;
----
   name   | rows | missing | unexpected | verdict
----------+------+---------+------------+----------
 vf_sums  |    3 |       0 |          0 | verified
 vf_rows  |   13 |       0 |          0 | verified
 vf_up    |   20 |       0 |          0 | verified
 vf_ratio |   13 |       0 |          0 | verified
 vf_ratio |    0 |       0 |          0 | in error
 vf_ratio |   13 |       0 |          0 | verified
 vf_ratio |   13 |       0 |          0 | verified
(7 rows)

VERIFY MATERIALIZED VIEW vf_t;
VERIFY MATERIALIZED VIEW vf_plain;
VERIFY MATERIALIZED VIEW nowhere;
VERIFY MATERIALIZED VIEW vf_sums AS OF 5;
VERIFY VIEW vf_sums;
VERIFY MATERIALIZED VIEW;
VERIFY MATERIALIZED VIEW vf_sums AS OF then;
----
ERROR:  "vf_t" is a table, not a materialized view: there is nothing to verify
LINE 1: VERIFY MATERIALIZED VIEW vf_t;
                                 ^
ERROR:  "vf_plain" is a view, not a materialized view: there is nothing to verify
LINE 1: VERIFY MATERIALIZED VIEW vf_plain;
                                 ^
ERROR:  relation "nowhere" does not exist
LINE 1: VERIFY MATERIALIZED VIEW nowhere;
                                 ^
ERROR:  relation "vf_sums" can be read from time <time> on, not at 5
HINT:  read at a later time; RETAIN HISTORY keeps more of it
ERROR:  syntax error at or near "vf_sums"
LINE 1: VERIFY VIEW vf_sums;
                    ^
ERROR:  syntax error at end of input
LINE 1: VERIFY MATERIALIZED VIEW;
                                ^
ERROR:  syntax error at or near "then"
LINE 1: VERIFY MATERIALIZED VIEW vf_sums AS OF then;
                                               ^

BEGIN;
SELECT count(*) FROM vf_sums;
VERIFY MATERIALIZED VIEW vf_sums;
COMMIT;
----
BEGIN
 count
-------
     3
(1 row)
NOTICE:  verified at <time>: 3 rows, no difference
 mz_in_view | mz_in_query | mz_error | g | n | s
------------+-------------+----------+---+---+---
(0 rows)
COMMIT

DROP TABLE vf_t CASCADE;
DROP VIEW vf_now;
SELECT count(*) FROM mz_internal.mz_verifications v JOIN mz_objects o ON v.object_id = o.id WHERE o.name LIKE 'vf_%';
----
DROP TABLE
DROP VIEW
 count
-------
     0
(1 row)
