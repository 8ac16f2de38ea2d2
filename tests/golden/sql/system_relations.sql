CREATE TABLE sy_t (a int NOT NULL, b numeric(10, 2));
CREATE VIEW sy_v AS SELECT a FROM sy_t;
CREATE MATERIALIZED VIEW sy_m AS SELECT a, count(*) AS n FROM sy_t GROUP BY a;
SELECT count(*) FROM sy_m;
----
CREATE TABLE
CREATE VIEW
CREATE MATERIALIZED VIEW
 count
-------
     0
(1 row)

SELECT name, type, create_sql FROM mz_catalog.mz_objects WHERE name LIKE 'sy_%' ORDER BY name;
----
 name |       type        |                                  create_sql
------+-------------------+-------------------------------------------------------------------------------
 sy_m | materialized-view | CREATE MATERIALIZED VIEW sy_m AS SELECT a, count(*) AS n FROM sy_t GROUP BY a
 sy_t | table             | CREATE TABLE sy_t (a int NOT NULL, b numeric(10, 2))
 sy_v | view              | CREATE VIEW sy_v AS SELECT a FROM sy_t
(3 rows)

SELECT o.name AS relation, c.position, c.name, c.type, c.nullable
FROM mz_objects o JOIN mz_columns c ON o.id = c.id WHERE o.name LIKE 'sy_%'
ORDER BY o.name, c.position;
----
 relation | position | name |     type      | nullable
----------+----------+------+---------------+----------
 sy_m     |        1 | a    | integer       | t
 sy_m     |        2 | n    | bigint        | t
 sy_t     |        1 | a    | integer       | f
 sy_t     |        2 | b    | numeric(10,2) | t
 sy_v     |        1 | a    | integer       | t
(5 rows)

SELECT o.name, f.read_frontier < f.write_frontier AS readable
FROM mz_internal.mz_frontiers f JOIN mz_objects o ON f.object_id = o.id WHERE o.name LIKE 'sy_%' ORDER BY o.name;
----
 name | readable
------+----------
 sy_m | t
 sy_t | t
(2 rows)

SELECT o.name, h.replica_id, h.hydrated, h.error
FROM mz_internal.mz_hydration_statuses h JOIN mz_objects o ON h.object_id = o.id WHERE o.name LIKE 'sy_%';
----
 name | replica_id | hydrated | error
------+------------+----------+-------
 sy_m | s1-r1      | t        |
(1 row)

SELECT type, count(*) FROM tidemark.mz_catalog.mz_objects WHERE name LIKE 'sy_%' GROUP BY type ORDER BY type;
----
       type        | count
-------------------+-------
 materialized-view |     1
 table             |     1
 view              |     1
(3 rows)

SELECT name FROM public.mz_objects;
SELECT object_id FROM mz_frontiers;
INSERT INTO mz_objects VALUES ('u1', 'x', 'table', '');
DELETE FROM mz_catalog.mz_objects;
SUBSCRIBE mz_objects;
SELECT * FROM pg_catalog.pg_nothing;
----
ERROR:  relation "public.mz_objects" does not exist
LINE 1: SELECT name FROM public.mz_objects;
                         ^
HINT:  did you mean mz_objects?
ERROR:  relation "mz_frontiers" does not exist
LINE 1: SELECT object_id FROM mz_frontiers;
                              ^
HINT:  did you mean mz_internal.mz_frontiers?
ERROR:  relation "mz_objects" does not exist
LINE 1: INSERT INTO mz_objects VALUES ('u1', 'x', 'table', '');
                    ^
ERROR:  relation "mz_catalog.mz_objects" does not exist
LINE 1: DELETE FROM mz_catalog.mz_objects;
                    ^
ERROR:  SUBSCRIBE cannot follow a system relation: it is made up when it is asked for
HINT:  SELECT from it, again and again
ERROR:  relation "pg_catalog.pg_nothing" does not exist
LINE 1: SELECT * FROM pg_catalog.pg_nothing;
                      ^

DROP TABLE sy_t CASCADE;
SELECT count(*) FROM mz_objects WHERE name LIKE 'sy_%';
----
DROP TABLE
 count
-------
     0
(1 row)
