CREATE TABLE rh_t (k int) WITH (RETAIN HISTORY FOR '1 hour');
CREATE TABLE rh_short (k int);
CREATE MATERIALIZED VIEW rh_v WITH (RETAIN HISTORY = FOR '2 days', REFRESH ON COMMIT) AS SELECT count(*) AS n FROM rh_t;
CREATE SOURCE rh_s FROM LOAD GENERATOR COUNTER (UP TO 1) WITH (RETAIN HISTORY FOR '90 seconds', TIMESTAMP INTERVAL '1s');
----
CREATE TABLE
CREATE TABLE
CREATE MATERIALIZED VIEW
CREATE SOURCE

SELECT o.name, r.strategy, r.value FROM mz_internal.mz_history_retention_strategies r JOIN mz_objects o ON o.id = r.id WHERE o.name LIKE 'rh%' ORDER BY o.name;
----
   name   | strategy |   value
----------+----------+-----------
 rh_s     | FOR      |     90000
 rh_short | FOR      |      1000
 rh_t     | FOR      |   3600000
 rh_v     | FOR      | 172800000
(4 rows)

INSERT INTO rh_t VALUES (1);
INSERT INTO rh_short VALUES (1);
SELECT mz_now() AS t1 FROM rh_v
\gset
INSERT INTO rh_t VALUES (2);
----
INSERT 0 1
INSERT 0 1
INSERT 0 1

-- Long after others have forgotten.
\! sleep 4
SELECT count(*) FROM rh_t AS OF :t1;
SELECT n FROM rh_v AS OF :t1;
----
 count
-------
     1
(1 row)
 n
---
 1
(1 row)

CREATE TABLE rh_no (k int) WITH (RETAIN HISTORY FOR '1 month');
CREATE TABLE rh_no (k int) WITH (RETAIN HISTORY FOR 'long');
CREATE TABLE rh_no (k int) WITH (RETAIN HISTORY FOR '-1 s');
CREATE TABLE rh_no (k int) WITH (RETAIN HISTORY);
CREATE TABLE rh_no (k int) WITH (FILLFACTOR = 70);
CREATE MATERIALIZED VIEW rh_no WITH (FILLFACTOR = 70) AS SELECT k FROM rh_t;
CREATE SOURCE rh_no FROM LOAD GENERATOR COUNTER WITH (FILLFACTOR = 70);
----
ERROR:  RETAIN HISTORY FOR '1 month': a month has no fixed length
HINT:  use weeks, days or less
ERROR:  invalid input syntax for type interval: "long"
ERROR:  RETAIN HISTORY FOR takes a positive interval of whole milliseconds, not '-1 s'
ERROR:  options of CREATE TABLE other than RETAIN HISTORY are not supported
HINT:  supported: WITH (RETAIN HISTORY FOR '<interval>')
ERROR:  options of CREATE TABLE other than RETAIN HISTORY are not supported
HINT:  supported: WITH (RETAIN HISTORY FOR '<interval>')
ERROR:  options of materialized views other than REFRESH and RETAIN HISTORY are not supported
HINT:  supported: REFRESH ON COMMIT, REFRESH AT CREATION, REFRESH AT '<timestamp>', REFRESH EVERY '<interval>' [ALIGNED TO '<timestamp>'], RETAIN HISTORY FOR '<interval>'
ERROR:  source option FILLFACTOR is not supported
HINT:  known: TIMESTAMP INTERVAL, RETAIN HISTORY FOR

DROP TABLE rh_t CASCADE;
DROP TABLE rh_short;
DROP SOURCE rh_s;
----
DROP TABLE
DROP TABLE
DROP SOURCE
