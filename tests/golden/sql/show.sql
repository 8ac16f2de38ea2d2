CREATE TABLE sh_t (a int NOT NULL, b numeric(10, 2), c timestamptz);
CREATE VIEW sh_v AS
  SELECT a, b -- with a comment
  FROM sh_t;
CREATE MATERIALIZED VIEW sh_m IN CLUSTER quickstart AS SELECT a, count(*) AS n, sum(b) AS s FROM sh_t GROUP BY a;
CREATE SOURCE sh_s FROM LOAD GENERATOR AUCTION (UP TO 1, USERS 5) FOR ALL TABLES;
----
CREATE TABLE
CREATE VIEW
CREATE MATERIALIZED VIEW
CREATE SOURCE

SHOW TABLES;
----
 name
------
 sh_t
(1 row)

SHOW SOURCES;
----
   name   |   type
----------+-----------
 auctions | subsource
 bids     | subsource
 sh_s     | source
 users    | subsource
(4 rows)

SHOW VIEWS;
----
 name
------
 sh_v
(1 row)

SHOW MATERIALIZED VIEWS;
----
 name
------
 sh_m
(1 row)

SHOW OBJECTS;
----
   name   |       type
----------+-------------------
 auctions | subsource
 bids     | subsource
 sh_m     | materialized-view
 sh_s     | source
 sh_t     | table
 sh_v     | view
 users    | subsource
(7 rows)

SHOW OBJECTS FROM public;
----
   name   |       type
----------+-------------------
 auctions | subsource
 bids     | subsource
 sh_m     | materialized-view
 sh_s     | source
 sh_t     | table
 sh_v     | view
 users    | subsource
(7 rows)

SHOW TABLES FROM nowhere;
----
ERROR:  unknown schema "nowhere"

SHOW CLUSTERS;
----
    name    | status
------------+---------
 quickstart | running
(1 row)

SHOW DATABASES;
----
   name
----------
 tidemark
(1 row)

SHOW SCHEMAS;
----
    name
-------------
 public
 mz_catalog
 mz_internal
(3 rows)

SHOW COLUMNS FROM sh_t;
----
 name | nullable |           type
------+----------+--------------------------
 a    | f        | integer
 b    | t        | numeric(10,2)
 c    | t        | timestamp with time zone
(3 rows)

SHOW COLUMNS FROM sh_m;
----
 name | nullable |     type
------+----------+---------------
 a    | t        | integer
 n    | t        | bigint
 s    | t        | numeric(38,2)
(3 rows)

SHOW COLUMNS FROM sh_v;
----
 name | nullable |     type
------+----------+---------------
 a    | t        | integer
 b    | t        | numeric(10,2)
(2 rows)

SHOW COLUMNS FROM bids;
----
    name    | nullable |           type
------------+----------+--------------------------
 id         | f        | bigint
 auction_id | f        | bigint
 buyer      | f        | bigint
 amount     | f        | numeric(12,2)
 bid_time   | f        | timestamp with time zone
(5 rows)

SHOW COLUMNS FROM mz_catalog.mz_objects;
----
    name    | nullable | type
------------+----------+------
 id         | t        | text
 name       | t        | text
 type       | t        | text
 create_sql | t        | text
(4 rows)

SHOW COLUMNS FROM nowhere;
----
ERROR:  relation "nowhere" does not exist

\a
SHOW CREATE TABLE sh_t;
SHOW CREATE VIEW sh_v;
SHOW CREATE MATERIALIZED VIEW sh_m;
SHOW CREATE SOURCE sh_s;
\a
----
Output format is unaligned.
name|create_sql
sh_t|CREATE TABLE sh_t (a int NOT NULL, b numeric(10, 2), c timestamptz)
(1 row)
name|create_sql
sh_v|CREATE VIEW sh_v AS
  SELECT a, b -- with a comment
  FROM sh_t
(1 row)
name|create_sql
sh_m|CREATE MATERIALIZED VIEW sh_m IN CLUSTER quickstart AS SELECT a, count(*) AS n, sum(b) AS s FROM sh_t GROUP BY a
(1 row)
name|create_sql
sh_s|CREATE SOURCE sh_s FROM LOAD GENERATOR AUCTION (UP TO 1, USERS 5) FOR ALL TABLES
(1 row)
Output format is aligned.

SHOW CREATE TABLE sh_v;
SHOW CREATE VIEW nowhere;
----
ERROR:  "sh_v" is not a table
ERROR:  relation "nowhere" does not exist

SHOW INDEXES;
SHOW nonsense;
----
ERROR:  unrecognized configuration parameter "indexes"
ERROR:  unrecognized configuration parameter "nonsense"

DROP SOURCE sh_s;
DROP TABLE sh_t CASCADE;
SHOW OBJECTS;
----
DROP SOURCE
DROP TABLE
 name | type
------+------
(0 rows)
