-- Schemas: made, filled, found through the search path, renamed, dropped.
CREATE SCHEMA sc_a;
CREATE SCHEMA IF NOT EXISTS sc_a;
CREATE SCHEMA sc_a;
CREATE SCHEMA "sc B";
CREATE SCHEMA pg_mine;
CREATE SCHEMA sc_a CREATE TABLE t (a int);
SHOW SCHEMAS;
----
CREATE SCHEMA
NOTICE:  schema "sc_a" already exists, skipping
CREATE SCHEMA
ERROR:  schema "sc_a" already exists
CREATE SCHEMA
ERROR:  unacceptable schema name "pg_mine"
HINT:  names that begin with pg_ or mz_ are the system's
ERROR:  CREATE SCHEMA takes only a name
HINT:  create what is in it in statements of its own
        name
--------------------
 information_schema
 mz_catalog
 mz_internal
 pg_catalog
 public
 sc B
 sc_a
(7 rows)

-- Names are unique within a schema, and folded unless quoted.
CREATE TABLE sc_a.sc_t (id int, place text);
CREATE TABLE sc_t (id int, place text);
CREATE TABLE tidemark."sc B".sc_t (id int, place text);
CREATE TABLE sc_a.sc_t (id int);
CREATE TABLE sc_nowhere.sc_t (id int);
CREATE TABLE mz_internal.sc_t (id int);
INSERT INTO sc_a.sc_t VALUES (1, 'a');
INSERT INTO public.sc_t VALUES (2, 'public');
INSERT INTO "sc B".sc_t VALUES (3, 'B');
SELECT * FROM SC_A.sc_t UNION ALL SELECT * FROM "sc B".sc_t UNION ALL SELECT * FROM sc_t ORDER BY id;
----
CREATE TABLE
CREATE TABLE
CREATE TABLE
ERROR:  relation "sc_t" already exists
ERROR:  schema "sc_nowhere" does not exist
LINE 1: CREATE TABLE sc_nowhere.sc_t (id int);
                     ^
ERROR:  cannot create "sc_t" in system schema "mz_internal"
HINT:  create it in a schema of yours
INSERT 0 1
INSERT 0 1
INSERT 0 1
 id | place
----+--------
  1 | a
  2 | public
  3 | B
(3 rows)

-- The search path.
SHOW search_path;
SELECT current_schema();
SET search_path = "sc B", sc_nowhere, public;
SHOW search_path;
SELECT current_schema(), current_schemas(false), current_schemas(true);
SELECT place FROM sc_t;
SELECT place FROM public.sc_t;
UPDATE sc_t SET id = 4 WHERE sc_t.place = 'B';
DELETE FROM sc_a.sc_t WHERE id = 7;
SELECT s.id, p.id FROM sc_t AS s, public.sc_t AS p;
SELECT "sc B".sc_t.id, public.sc_t.id FROM "sc B".sc_t, public.sc_t;
SELECT sc_t.id FROM sc_t, public.sc_t;
COPY sc_t TO STDOUT;
SHOW TABLES;
SHOW TABLES FROM sc_a;
SHOW COLUMNS FROM sc_t;
SET search_path = sc_nowhere;
SELECT current_schema() IS NULL AS none;
CREATE TABLE sc_x (id int);
SELECT place FROM sc_t;
RESET search_path;
SELECT place FROM sc_t;
----
 search_path
-------------
 public
(1 row)
 current_schema
----------------
 public
(1 row)
SET
        search_path
----------------------------
 "sc B", sc_nowhere, public
(1 row)
 current_schema | current_schemas |      current_schemas
----------------+-----------------+----------------------------
 sc B           | {"sc B",public} | {pg_catalog,"sc B",public}
(1 row)
 place
-------
 B
(1 row)
 place
--------
 public
(1 row)
UPDATE 1
DELETE 0
 id | id
----+----
  4 |  2
(1 row)
 id | id
----+----
  4 |  2
(1 row)
ERROR:  table reference "sc_t" is ambiguous
LINE 1: SELECT sc_t.id FROM sc_t, public.sc_t;
               ^
4	B
 name
------
 sc_t
(1 row)
 name
------
 sc_t
(1 row)
 name  | nullable |  type
-------+----------+---------
 id    | t        | integer
 place | t        | text
(2 rows)
SET
 none
------
 t
(1 row)
ERROR:  no schema has been selected to create in
HINT:  SET search_path to one that is there, or name it: schema.name
ERROR:  relation "sc_t" does not exist
LINE 1: SELECT place FROM sc_t;
                          ^
HINT:  did you mean "sc B".sc_t?
RESET
 place
--------
 public
(1 row)

-- Views, indexes and what reads them; in one schema and across two.
CREATE MATERIALIZED VIEW sc_a.sc_all AS SELECT id, place FROM sc_a.sc_t UNION ALL SELECT id, place FROM sc_t;
CREATE VIEW sc_a.sc_v AS SELECT place FROM sc_a.sc_all WHERE id > 1;
CREATE INDEX sc_by_id ON sc_a.sc_all (id);
CREATE DEFAULT INDEX ON sc_a.sc_all;
SHOW INDEXES ON sc_a.sc_all;
SHOW INDEXES;
SELECT * FROM sc_a.sc_v;
EXPLAIN SELECT * FROM sc_a.sc_all WHERE id = 2;
EXPLAIN VIEW sc_a.sc_v;
VERIFY MATERIALIZED VIEW sc_a.sc_all;
SHOW CREATE VIEW sc_a.sc_v;
SHOW VIEWS;
SHOW VIEWS FROM tidemark.sc_a;
SHOW MATERIALIZED VIEWS FROM sc_a;
SHOW OBJECTS FROM sc_nowhere;
DROP TABLE sc_t;
----
CREATE MATERIALIZED VIEW
CREATE VIEW
CREATE INDEX
CREATE INDEX
        name        |   on   |  cluster   |    key
--------------------+--------+------------+-----------
 sc_all_primary_idx | sc_all | quickstart | id, place
 sc_by_id           | sc_all | quickstart | id
(2 rows)
 name | on | cluster | key
------+----+---------+-----
(0 rows)
 place
--------
 public
(1 row)
                                         plan
---------------------------------------------------------------------------------------
 Project (#0, #1)
   Filter (#0 = 2)
     Get sc_a.sc_all (id, place)
 Answered without Spark: sc_a.sc_all looked up in index sc_a.sc_by_id by (id), one key
(4 rows)
              plan
---------------------------------
 Project (#1)
   Filter (#0 > 1)
     Get sc_a.sc_all (id, place)
(3 rows)
NOTICE:  verified at <time>: 2 rows, no difference
 mz_in_view | mz_in_query | mz_error | id | place
------------+-------------+----------+----+-------
(0 rows)
 name |                             create_sql
------+---------------------------------------------------------------------
 sc_v | CREATE VIEW sc_a.sc_v AS SELECT place FROM sc_a.sc_all WHERE id > 1
(1 row)
 name
------
(0 rows)
 name
------
 sc_v
(1 row)
  name  |  cluster   | status  | error
--------+------------+---------+-------
 sc_all | quickstart | running |
(1 row)
ERROR:  schema "sc_nowhere" does not exist
LINE 1: SHOW OBJECTS FROM sc_nowhere;
                          ^
ERROR:  cannot drop sc_t because other objects depend on it: sc_a.sc_all, sc_a.sc_v
HINT:  use DROP ... CASCADE to drop them too

-- What psql asks.
\dn sc*
\dt sc_*
\dt sc_a.*
\dt *.sc_t
\d sc_a.sc_t
\d sc_a.sc_all
\dv sc_a.*
SET search_path = sc_a, public;
\dt sc_*
\d sc_t
\di
SELECT 'sc_t'::regclass AS found, 'public.sc_t'::regclass::text AS hidden;
RESET search_path;
SELECT table_schema, table_name FROM information_schema.tables WHERE table_name = 'sc_t' ORDER BY 1;
SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'sc%' ORDER BY 1;
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'sc_t' ORDER BY 1;
SELECT s.name, o.name, o.type FROM mz_objects o JOIN mz_schemas s ON s.id = o.schema_id WHERE s.name LIKE 'sc%' ORDER BY 1, 2;
SELECT indexdef FROM pg_indexes WHERE schemaname = 'sc_a' ORDER BY 1;
----
 List of schemas
 Name |  Owner
------+----------
 sc B | tidemark
 sc_a | tidemark
(2 rows)
        List of relations
 Schema | Name | Type  |  Owner
--------+------+-------+----------
 public | sc_t | table | tidemark
(1 row)
        List of relations
 Schema | Name | Type  |  Owner
--------+------+-------+----------
 sc_a   | sc_t | table | tidemark
(1 row)
        List of relations
 Schema | Name | Type  |  Owner
--------+------+-------+----------
 public | sc_t | table | tidemark
 sc B   | sc_t | table | tidemark
 sc_a   | sc_t | table | tidemark
(3 rows)
                 Table "sc_a.sc_t"
 Column |  Type   | Collation | Nullable | Default
--------+---------+-----------+----------+---------
 id     | integer |           |          |
 place  | text    |           |          |
          Materialized view "sc_a.sc_all"
 Column |  Type   | Collation | Nullable | Default
--------+---------+-----------+----------+---------
 id     | integer |           |          |
 place  | text    |           |          |
Indexes:
    "sc_all_primary_idx" btree (id, place)
    "sc_by_id" btree (id)
        List of relations
 Schema | Name | Type |  Owner
--------+------+------+----------
 sc_a   | sc_v | view | tidemark
(1 row)
SET
        List of relations
 Schema | Name | Type  |  Owner
--------+------+-------+----------
 sc_a   | sc_t | table | tidemark
(1 row)
                 Table "sc_a.sc_t"
 Column |  Type   | Collation | Nullable | Default
--------+---------+-----------+----------+---------
 id     | integer |           |          |
 place  | text    |           |          |
                    List of relations
 Schema |        Name        | Type  |  Owner   | Table
--------+--------------------+-------+----------+--------
 sc_a   | sc_all_primary_idx | index | tidemark | sc_all
 sc_a   | sc_by_id           | index | tidemark | sc_all
(2 rows)
 found |   hidden
-------+-------------
 sc_t  | public.sc_t
(1 row)
RESET
 table_schema | table_name
--------------+------------
 public       | sc_t
 sc B         | sc_t
 sc_a         | sc_t
(3 rows)
 schema_name
-------------
 sc B
 sc_a
(2 rows)
 nspname | relname
---------+---------
 public  | sc_t
 sc B    | sc_t
 sc_a    | sc_t
(3 rows)
 name |        name        |       type
------+--------------------+-------------------
 sc B | sc_t               | table
 sc_a | sc_all             | materialized-view
 sc_a | sc_all_primary_idx | index
 sc_a | sc_by_id           | index
 sc_a | sc_t               | table
 sc_a | sc_v               | view
(6 rows)
                                indexdef
------------------------------------------------------------------------
 CREATE INDEX sc_all_primary_idx ON sc_a.sc_all USING btree (id, place)
 CREATE INDEX sc_by_id ON sc_a.sc_all USING btree (id)
(2 rows)

-- Other names, and other schemas: who reads by id notices nothing.
ALTER TABLE sc_t RENAME TO sc_u;
ALTER TABLE sc_u SET SCHEMA sc_a;
ALTER SCHEMA sc_a RENAME TO sc_c;
SELECT * FROM sc_c.sc_v;
INSERT INTO sc_c.sc_u VALUES (5, 'moved');
SELECT * FROM sc_c.sc_v ORDER BY place;
SHOW CREATE TABLE sc_c.sc_u;
ALTER TABLE sc_c.sc_u RENAME TO sc_t;
ALTER VIEW sc_c.sc_u RENAME TO sc_w;
ALTER TABLE IF EXISTS sc_u RENAME TO sc_w;
ALTER INDEX sc_c.sc_by_id SET SCHEMA public;
ALTER SCHEMA sc_a RENAME TO sc_d;
ALTER SCHEMA sc_c RENAME TO public;
ALTER SCHEMA mz_catalog RENAME TO sc_e;
----
ALTER TABLE
ALTER TABLE
ALTER SCHEMA
 place
--------
 public
(1 row)
INSERT 0 1
 place
--------
 moved
 public
(2 rows)
 name |                 create_sql
------+---------------------------------------------
 sc_u | CREATE TABLE sc_c.sc_u (id int, place text)
(1 row)
ERROR:  relation "sc_t" already exists
ERROR:  "sc_u" is not a view
LINE 1: ALTER VIEW sc_c.sc_u RENAME TO sc_w;
                        ^
NOTICE:  table "sc_u" does not exist, skipping
ALTER TABLE
ERROR:  "sc_by_id" is an index: it is in the schema of its relation
HINT:  move that, and its indexes go along
ERROR:  schema "sc_a" does not exist
LINE 1: ALTER SCHEMA sc_a RENAME TO sc_d;
                     ^
ERROR:  schema "public" already exists
ERROR:  schema "mz_catalog" is required by the database system

-- Gone.
DROP SCHEMA sc_c;
DROP SCHEMA sc_c RESTRICT;
DROP SCHEMA sc_a;
DROP SCHEMA IF EXISTS sc_a;
DROP SCHEMA pg_catalog;
DROP SCHEMA sc_c, "sc B" CASCADE;
SHOW SCHEMAS;
SELECT * FROM sc_c.sc_v;
----
ERROR:  cannot drop schema "sc_c" because other objects are in it: sc_c.sc_all, sc_c.sc_all_primary_idx, sc_c.sc_by_id, sc_c.sc_t, sc_c.sc_u, sc_c.sc_v
HINT:  use DROP ... CASCADE to drop them too
ERROR:  cannot drop schema "sc_c" because other objects are in it: sc_c.sc_all, sc_c.sc_all_primary_idx, sc_c.sc_by_id, sc_c.sc_t, sc_c.sc_u, sc_c.sc_v
HINT:  use DROP ... CASCADE to drop them too
ERROR:  schema "sc_a" does not exist
LINE 1: DROP SCHEMA sc_a;
                    ^
NOTICE:  schema "sc_a" does not exist, skipping
DROP SCHEMA
ERROR:  schema "pg_catalog" is required by the database system
DROP SCHEMA
        name
--------------------
 information_schema
 mz_catalog
 mz_internal
 pg_catalog
 public
(5 rows)
ERROR:  relation "sc_c.sc_v" does not exist
LINE 1: SELECT * FROM sc_c.sc_v;
                      ^
