CREATE TABLE rfr_t (k int);
INSERT INTO rfr_t VALUES (1), (2);
CREATE MATERIALIZED VIEW rfr_always WITH (REFRESH ON COMMIT) AS SELECT count(*) AS n FROM rfr_t;
CREATE MATERIALIZED VIEW rfr_once IN CLUSTER quickstart WITH (REFRESH AT CREATION) AS SELECT count(*) AS n FROM rfr_t;
CREATE MATERIALIZED VIEW rfr_far WITH (REFRESH AT '2091-02-03 04:05:06', REFRESH EVERY '36 hours' ALIGNED TO '2090-01-01 03:00') AS SELECT count(*) AS n FROM rfr_t;
----
CREATE TABLE
INSERT 0 2
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW

SELECT * FROM rfr_always;
SELECT * FROM rfr_once;
----
 n
---
 2
(1 row)
 n
---
 2
(1 row)

SELECT o.name, s.type, s.interval, s.aligned_to, s.at IS NOT NULL AS at FROM mz_internal.mz_materialized_view_refresh_strategies s JOIN mz_objects o ON o.id = s.materialized_view_id WHERE o.name LIKE 'rfr_%' ORDER BY o.name, s.type;
----
    name    |   type    |    interval    |       aligned_to       | at
------------+-----------+----------------+------------------------+----
 rfr_always | on-commit |                |                        | f
 rfr_far    | at        |                |                        | t
 rfr_far    | every     | 1 day 12:00:00 | 2090-01-01 03:00:00+00 | f
 rfr_once   | at        |                |                        | t
(4 rows)

-- It stays as it was when it was made; so does what reads it. A subscription ends.
INSERT INTO rfr_t VALUES (3);
CREATE MATERIALIZED VIEW rfr_over AS SELECT n + 1 AS more FROM rfr_once;
SELECT * FROM rfr_always;
SELECT * FROM rfr_once;
SELECT * FROM rfr_over;
SELECT write_frontier IS NULL AS ended FROM mz_internal.mz_frontiers f JOIN mz_objects o ON f.object_id = o.id WHERE o.name = 'rfr_once';
COPY (SUBSCRIBE rfr_once) TO STDOUT;
----
INSERT 0 1
CREATE MATERIALIZED VIEW
 n
---
 3
(1 row)
 n
---
 2
(1 row)
 more
------
    3
(1 row)
 ended
-------
 t
(1 row)
<time>	1	2

-- It is compared with its query as of its refresh, while that can be read.
VERIFY MATERIALIZED VIEW rfr_once;
----
NOTICE:  verified at <time>: 1 row, no difference
 mz_in_view | mz_in_query | mz_error | n
------------+-------------+----------+---
(0 rows)

SHOW CREATE MATERIALIZED VIEW rfr_once;
----
   name   |                                                      create_sql
----------+-----------------------------------------------------------------------------------------------------------------------
 rfr_once | CREATE MATERIALIZED VIEW rfr_once IN CLUSTER quickstart WITH (REFRESH AT CREATION) AS SELECT count(*) AS n FROM rfr_t
(1 row)

SELECT o.name, r.last_completed_refresh IS NOT NULL AS last FROM mz_internal.mz_materialized_view_refreshes r JOIN mz_objects o ON o.id = r.materialized_view_id WHERE o.name = 'rfr_far';
----
  name   | last
---------+------
 rfr_far | f
(1 row)

CREATE MATERIALIZED VIEW rfr_no WITH (REFRESH ON COMMIT, REFRESH AT CREATION) AS SELECT k FROM rfr_t;
CREATE MATERIALIZED VIEW rfr_no WITH (REFRESH EVERY '1 month') AS SELECT k FROM rfr_t;
CREATE MATERIALIZED VIEW rfr_no WITH (REFRESH EVERY '-1 day') AS SELECT k FROM rfr_t;
CREATE MATERIALIZED VIEW rfr_no WITH (REFRESH AT 12345) AS SELECT k FROM rfr_t;
CREATE MATERIALIZED VIEW rfr_no WITH (REFRESH AT 'soon') AS SELECT k FROM rfr_t;
CREATE MATERIALIZED VIEW rfr_no WITH (REFRESH WHEN EVER) AS SELECT k FROM rfr_t;
CREATE MATERIALIZED VIEW rfr_no WITH (FILLFACTOR = 70) AS SELECT k FROM rfr_t;
----
ERROR:  REFRESH ON COMMIT cannot be combined with other REFRESH options
HINT:  leave it out, or leave the others out
ERROR:  REFRESH EVERY '1 month': a month has no fixed length
HINT:  use weeks, days or less
ERROR:  REFRESH EVERY takes a positive interval of whole milliseconds, not '-1 day'
ERROR:  REFRESH AT 12345 is in the past: the view would never be refreshed then
HINT:  now is <time>; REFRESH AT CREATION is at once
ERROR:  invalid input syntax for type timestamp with time zone: "soon"
ERROR:  syntax error at or near "WHEN"
LINE 1: CREATE MATERIALIZED VIEW rfr_no WITH (REFRESH WHEN EVER) AS ...
                                                      ^
ERROR:  options of materialized views other than REFRESH and RETAIN HISTORY are not supported
HINT:  supported: REFRESH ON COMMIT, REFRESH AT CREATION, REFRESH AT '<timestamp>', REFRESH EVERY '<interval>' [ALIGNED TO '<timestamp>'], RETAIN HISTORY FOR '<interval>'

DROP TABLE rfr_t CASCADE;
----
DROP TABLE
