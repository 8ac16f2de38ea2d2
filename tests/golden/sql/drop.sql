CREATE TABLE dr_t (a int);
CREATE VIEW dr_v AS SELECT a FROM dr_t;
CREATE MATERIALIZED VIEW dr_m AS SELECT a, count(*) AS n FROM dr_v GROUP BY a;
CREATE MATERIALIZED VIEW dr_mm AS SELECT count(*) AS n FROM dr_m;
CREATE VIEW dr_vm AS SELECT n FROM dr_m;
----
CREATE TABLE
CREATE VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE VIEW

DROP TABLE dr_t;
DROP VIEW dr_v;
DROP MATERIALIZED VIEW dr_m;
DROP TABLE dr_t RESTRICT;
----
ERROR:  cannot drop dr_t because other objects depend on it: dr_m, dr_mm, dr_v, dr_vm
HINT:  use DROP ... CASCADE to drop them too
ERROR:  cannot drop dr_v because other objects depend on it: dr_m, dr_mm, dr_vm
HINT:  use DROP ... CASCADE to drop them too
ERROR:  cannot drop dr_m because other objects depend on it: dr_mm, dr_vm
HINT:  use DROP ... CASCADE to drop them too
ERROR:  cannot drop dr_t because other objects depend on it: dr_m, dr_mm, dr_v, dr_vm
HINT:  use DROP ... CASCADE to drop them too

DROP VIEW dr_t;
DROP TABLE dr_v;
DROP TABLE dr_m;
DROP VIEW dr_m;
DROP MATERIALIZED VIEW dr_v;
DROP SOURCE dr_t;
----
ERROR:  "dr_t" is not a view
LINE 1: DROP VIEW dr_t;
                  ^
ERROR:  "dr_v" is not a table
LINE 1: DROP TABLE dr_v;
                   ^
ERROR:  "dr_m" is not a table
LINE 1: DROP TABLE dr_m;
                   ^
ERROR:  "dr_m" is not a view
LINE 1: DROP VIEW dr_m;
                  ^
ERROR:  "dr_v" is not a materialized view
LINE 1: DROP MATERIALIZED VIEW dr_v;
                               ^
ERROR:  "dr_t" is not a source
LINE 1: DROP SOURCE dr_t;
                    ^

DROP TABLE dr_none;
DROP TABLE IF EXISTS dr_none;
DROP VIEW IF EXISTS dr_none, dr_vm;
DROP MATERIALIZED VIEW IF EXISTS dr_none;
DROP SOURCE IF EXISTS dr_none;
DROP INDEX dr_none;
DROP TABLE mz_catalog.mz_objects;
----
ERROR:  table "dr_none" does not exist
LINE 1: DROP TABLE dr_none;
                   ^
NOTICE:  table "dr_none" does not exist, skipping
DROP TABLE
NOTICE:  view "dr_none" does not exist, skipping
DROP VIEW
NOTICE:  materialized view "dr_none" does not exist, skipping
DROP MATERIALIZED VIEW
NOTICE:  source "dr_none" does not exist, skipping
DROP SOURCE
ERROR:  index "dr_none" does not exist
LINE 1: DROP INDEX dr_none;
                   ^
ERROR:  table "mz_catalog.mz_objects" does not exist
LINE 1: DROP TABLE mz_catalog.mz_objects;
                   ^

-- All or none.
DROP TABLE dr_t, dr_none;
SELECT count(*) FROM dr_t;
----
ERROR:  table "dr_none" does not exist
LINE 1: DROP TABLE dr_t, dr_none;
                         ^
 count
-------
     0
(1 row)

DROP MATERIALIZED VIEW dr_mm;
SELECT * FROM dr_mm;
DROP VIEW dr_v CASCADE;
SELECT * FROM dr_m;
SELECT count(*) FROM dr_t;
----
DROP MATERIALIZED VIEW
ERROR:  relation "dr_mm" does not exist
LINE 1: SELECT * FROM dr_mm;
                      ^
HINT:  did you mean dr_m?
DROP VIEW
ERROR:  relation "dr_m" does not exist
LINE 1: SELECT * FROM dr_m;
                      ^
HINT:  did you mean dr_t?
 count
-------
     0
(1 row)

-- A name is free again, and what it named is gone.
INSERT INTO dr_t VALUES (1);
DROP TABLE dr_t;
CREATE TABLE dr_t (b text);
SELECT * FROM dr_t;
INSERT INTO dr_t VALUES ('again');
CREATE MATERIALIZED VIEW dr_m AS SELECT b FROM dr_t;
SELECT * FROM dr_m;
DROP TABLE dr_t CASCADE;
----
INSERT 0 1
DROP TABLE
CREATE TABLE
 b
---
(0 rows)
INSERT 0 1
CREATE MATERIALIZED VIEW
   b
-------
 again
(1 row)
DROP TABLE

SELECT count(*) FROM mz_objects WHERE name LIKE 'dr_%';
----
 count
-------
     0
(1 row)
