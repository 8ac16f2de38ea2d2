-- What an action did is seen in the relations about it.
CREATE TABLE ob_t (a int NOT NULL, b text);
CREATE VIEW ob_v AS SELECT a FROM ob_t WHERE a > 0;
CREATE MATERIALIZED VIEW ob_m AS SELECT a, count(*) AS n FROM ob_v GROUP BY a;
CREATE INDEX ob_i ON ob_m (a);
INSERT INTO ob_t VALUES (1, 'x'), (1, 'y');
SELECT * FROM ob_m;
----
CREATE TABLE
CREATE VIEW
CREATE MATERIALIZED VIEW
CREATE INDEX
INSERT 0 2
 a | n
---+---
 1 | 2
(1 row)

SELECT name, create_sql FROM mz_tables WHERE name LIKE 'ob_%';
SELECT name, definition FROM mz_views WHERE name LIKE 'ob_%';
SELECT m.name, c.name AS cluster, definition FROM mz_materialized_views m JOIN mz_clusters c ON m.cluster_id = c.id WHERE m.name LIKE 'ob_%';
----
 name |                 create_sql
------+--------------------------------------------
 ob_t | CREATE TABLE ob_t (a int NOT NULL, b text)
(1 row)
 name |           definition
------+---------------------------------
 ob_v | SELECT a FROM ob_t WHERE a > 0;
(1 row)
 name |  cluster   |                  definition
------+------------+-----------------------------------------------
 ob_m | quickstart | SELECT a, count(*) AS n FROM ob_v GROUP BY a;
(1 row)

SELECT o.name, r.name AS needs FROM mz_internal.mz_object_dependencies d JOIN mz_objects o ON o.id = d.object_id JOIN mz_objects r ON r.id = d.referenced_object_id WHERE o.name LIKE 'ob_%' ORDER BY 1, 2;
SELECT o.name, r.name AS kept_from FROM mz_internal.mz_compute_dependencies d JOIN mz_objects o ON o.id = d.object_id JOIN mz_objects r ON r.id = d.dependency_id WHERE o.name LIKE 'ob_%' ORDER BY 1, 2;
----
 name | needs
------+-------
 ob_i | ob_m
 ob_m | ob_t
 ob_m | ob_v
 ob_v | ob_t
(4 rows)
 name | kept_from
------+-----------
 ob_i | ob_m
 ob_m | ob_t
(2 rows)

-- What can be read is behind by some time, and is behind what it is kept from.
SELECT o.name, lag >= 0 AS behind FROM mz_internal.mz_wallclock_global_lag JOIN mz_objects o ON o.id = object_id WHERE o.name IN ('ob_t', 'ob_m') ORDER BY 1;
SELECT o.name, local_lag >= 0 AS local, global_lag >= 0 AS global, n.name AS near, f.name AS far FROM mz_internal.mz_materialization_lag JOIN mz_objects o ON o.id = object_id JOIN mz_objects n ON n.id = slowest_local_input_id JOIN mz_objects f ON f.id = slowest_global_input_id WHERE o.name = 'ob_m';
----
 name | behind
------+--------
 ob_m | t
 ob_t | t
(2 rows)
 name | local | global | near | far
------+-------+--------+------+------
 ob_m | t     | t      | ob_t | ob_t
(1 row)

SHOW TABLES LIKE 'ob%';
SHOW MATERIALIZED VIEWS WHERE name LIKE 'ob_%';
SHOW OBJECTS WHERE name LIKE 'ob_%' AND type <> 'view';
SHOW COLUMNS FROM ob_t WHERE nullable = 'f';
SHOW CLUSTERS LIKE 'quick%';
SHOW CREATE CLUSTER quickstart;
SHOW CREATE INDEX ob_i;
----
 name
------
 ob_t
(1 row)
 name |  cluster   | status  | error
------+------------+---------+-------
 ob_m | quickstart | running |
(1 row)
 name |       type
------+-------------------
 ob_i | index
 ob_m | materialized-view
 ob_t | table
(3 rows)
 name | nullable |  type
------+----------+---------
 a    | f        | integer
(1 row)
    name    | replicas | status
------------+----------+---------
 quickstart | r1       | running
(1 row)
    name    |                     create_sql
------------+----------------------------------------------------
 quickstart | CREATE CLUSTER quickstart (REPLICATION FACTOR = 1)
(1 row)
 name |          create_sql
------+-------------------------------
 ob_i | CREATE INDEX ob_i ON ob_m (a)
(1 row)

SHOW TABLES WHERE nothing = 1;
SHOW TABLES LIKE nothing;
SHOW CREATE CLUSTER nowhere;
----
ERROR:  column "nothing" does not exist
LINE 1: SHOW TABLES WHERE nothing = 1;
                          ^
ERROR:  syntax error at or near "nothing"
LINE 1: SHOW TABLES LIKE nothing;
                         ^
ERROR:  unknown cluster "nowhere"
LINE 1: SHOW CREATE CLUSTER nowhere;
                            ^
HINT:  SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one

-- Comments.
COMMENT ON TABLE ob_t IS 'what is counted';
COMMENT ON COLUMN ob_t.a IS 'the ''key''';
COMMENT ON MATERIALIZED VIEW ob_m IS 'counts';
SELECT o.name, object_type, object_sub_id, comment FROM mz_internal.mz_comments c JOIN mz_objects o ON o.id = c.id ORDER BY 1, 3 NULLS FIRST;
SELECT obj_description('ob_t'::regclass, 'pg_class'), col_description('ob_t'::regclass, 1);
\d+ ob_t
----
COMMENT
COMMENT
COMMENT
 name |    object_type    | object_sub_id |     comment
------+-------------------+---------------+-----------------
 ob_m | materialized-view |               | counts
 ob_t | table             |               | what is counted
 ob_t | table             |             1 | the 'key'
(3 rows)
 obj_description | col_description
-----------------+-----------------
 what is counted | the 'key'
(1 row)
                                           Table "public.ob_t"
 Column |  Type   | Collation | Nullable | Default | Storage  | Compression | Stats target | Description
--------+---------+-----------+----------+---------+----------+-------------+--------------+-------------
 a      | integer |           | not null |         | plain    |             |              | the 'key'
 b      | text    |           |          |         | extended |             |              |
Access method: heap

COMMENT ON TABLE ob_t IS NULL;
COMMENT ON TABLE ob_m IS 'x';
COMMENT ON COLUMN ob_t.nothing IS 'x';
COMMENT ON COLUMN ob_t IS 'x';
COMMENT ON FUNCTION f IS 'x';
SELECT obj_description('ob_t'::regclass, 'pg_class') IS NULL AS gone;
----
COMMENT
ERROR:  "ob_m" is not a table
LINE 1: COMMENT ON TABLE ob_m IS 'x';
                         ^
ERROR:  column "nothing" of relation "ob_t" does not exist
LINE 1: COMMENT ON COLUMN ob_t.nothing IS 'x';
                               ^
ERROR:  COMMENT ON COLUMN takes relation.column
ERROR:  COMMENT ON FUNCTION is not supported
HINT:  supported: COMMENT ON COLUMN, TABLE, SOURCE, VIEW, MATERIALIZED VIEW, CONNECTION, SECRET, SINK, INDEX
 gone
------
 t
(1 row)

-- Limits of all sessions: a new one has them.
ALTER SYSTEM SET idle_in_transaction_session_timeout = '3min';
ALTER SYSTEM SET max_result_size TO '2GB';
SELECT name, setting, default_setting FROM mz_internal.mz_system_settings WHERE setting <> default_setting;
SHOW max_result_size;
\c
SHOW max_result_size;
SET max_result_size = '1MB';
RESET max_result_size;
SHOW max_result_size;
----
ALTER SYSTEM
ALTER SYSTEM
                name                 | setting | default_setting
-------------------------------------+---------+-----------------
 idle_in_transaction_session_timeout | 3min    | 2min
 max_result_size                     | 2GB     | 1GB
(2 rows)
 max_result_size
-----------------
 1GB
(1 row)
You are now connected to database "tidemark" as user "tidemark".
 max_result_size
-----------------
 2GB
(1 row)
SET
RESET
 max_result_size
-----------------
 2GB
(1 row)

ALTER SYSTEM SET max_result_size = 'much';
ALTER SYSTEM SET max_connections = 0;
ALTER SYSTEM SET nonsense = 1;
ALTER SYSTEM SET server_version = '17';
SET max_connections = 7;
ALTER SYSTEM RESET max_result_size;
ALTER SYSTEM RESET ALL;
SELECT count(*) FROM mz_internal.mz_system_settings WHERE setting <> default_setting;
----
ERROR:  invalid value for parameter "max_result_size": "much"
HINT:  a number of bytes, or 512kB, 64MB, 1GB
ERROR:  invalid value for parameter "max_connections": "0"
HINT:  from 1 to 5000
ERROR:  unrecognized configuration parameter "nonsense"
LINE 1: ALTER SYSTEM SET nonsense = 1;
                         ^
HINT:  those that can: client_min_messages, cluster, datestyle, dialect, extra_float_digits, idle_in_transaction_session_timeout, idle_session_timeout, intervalstyle, log_min_duration_statement, max_connections, max_copy_from_size, max_memory, max_result_size, real_time_recency, real_time_recency_timeout, search_path, statement_timeout, timezone, transaction_isolation
ERROR:  parameter "server_version" cannot be changed for the system
HINT:  those that can: client_min_messages, cluster, datestyle, dialect, extra_float_digits, idle_in_transaction_session_timeout, idle_session_timeout, intervalstyle, log_min_duration_statement, max_connections, max_copy_from_size, max_memory, max_result_size, real_time_recency, real_time_recency_timeout, search_path, statement_timeout, timezone, transaction_isolation
ERROR:  parameter "max_connections" cannot be changed
ALTER SYSTEM
ALTER SYSTEM
 count
-------
     0
(1 row)

-- How long history is kept.
ALTER TABLE ob_t SET (RETAIN HISTORY FOR '1 hour');
ALTER MATERIALIZED VIEW ob_m SET (RETAIN HISTORY = FOR '2 hours');
SELECT o.name, value FROM mz_internal.mz_history_retention_strategies r JOIN mz_objects o ON o.id = r.id WHERE o.name LIKE 'ob_%' ORDER BY 1;
ALTER TABLE ob_t RESET (RETAIN HISTORY);
ALTER TABLE IF EXISTS ob_nothing SET (RETAIN HISTORY FOR '1 hour');
ALTER VIEW ob_v SET (RETAIN HISTORY FOR '1 hour');
ALTER TABLE ob_m SET (RETAIN HISTORY FOR '1 hour');
ALTER TABLE ob_t SET (FILLFACTOR = 70);
ALTER TABLE ob_t SET (RETAIN HISTORY FOR 'long');
ALTER TABLE ob_t SET CLUSTER quickstart;
ALTER MATERIALIZED VIEW ob_m SET CLUSTER nowhere;
SELECT value FROM mz_internal.mz_history_retention_strategies r JOIN mz_objects o ON o.id = r.id WHERE o.name = 'ob_t';
----
ALTER TABLE
ALTER MATERIALIZED VIEW
 name |  value
------+---------
 ob_m | 7200000
 ob_t | 3600000
(2 rows)
ALTER TABLE
NOTICE:  table "ob_nothing" does not exist, skipping
ALTER TABLE
ERROR:  "ob_v" is a view: it has no history
LINE 1: ALTER VIEW ob_v SET (RETAIN HISTORY FOR '1 hour');
                   ^
ERROR:  "ob_m" is not a table
LINE 1: ALTER TABLE ob_m SET (RETAIN HISTORY FOR '1 hour');
                    ^
ERROR:  ALTER ... SET (...) can change RETAIN HISTORY only
HINT:  SET (RETAIN HISTORY FOR '<interval>')
ERROR:  invalid input syntax for type interval: "long"
ERROR:  a table cannot be moved to another cluster
HINT:  what can: source, sink, materialized view
ERROR:  unknown cluster "nowhere"
LINE 1: ALTER MATERIALIZED VIEW ob_m SET CLUSTER nowhere;
                                                 ^
HINT:  SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one
 value
-------
  1000
(1 row)

-- Where errors are, and what was perhaps meant.
SELECT a, bb FROM ob_t;
SELECT a,
       b + 1
FROM ob_t;
SELECT ob_x.a FROM ob_t;
SELECT * FROM ob_tt;
SELECT lenght(b) FROM ob_t;
INSERT INTO ob_tt VALUES (1);
DROP VIEW ob_w;
SELECT 1\; SELECT x;
----
ERROR:  column "bb" does not exist
LINE 1: SELECT a, bb FROM ob_t;
                  ^
ERROR:  operator does not exist: text + integer
LINE 2:        b + 1
               ^
HINT:  no function or operator takes these types; an explicit cast may help
ERROR:  missing FROM-clause entry for table "ob_x"
LINE 1: SELECT ob_x.a FROM ob_t;
               ^
HINT:  did you mean ob_t?
ERROR:  relation "ob_tt" does not exist
LINE 1: SELECT * FROM ob_tt;
                      ^
HINT:  did you mean ob_t?
ERROR:  function lenght(text) does not exist
LINE 1: SELECT lenght(b) FROM ob_t;
               ^
HINT:  did you mean length?
ERROR:  relation "ob_tt" does not exist
LINE 1: INSERT INTO ob_tt VALUES (1);
                    ^
HINT:  did you mean ob_t?
ERROR:  view "ob_w" does not exist
LINE 1: DROP VIEW ob_w;
                  ^
 ?column?
----------
        1
(1 row)
ERROR:  column "x" does not exist
LINE 1: SELECT 1; SELECT x;
                         ^

DROP TABLE ob_t CASCADE;
SELECT count(*) FROM mz_internal.mz_comments;
----
DROP TABLE
 count
-------
     0
(1 row)
