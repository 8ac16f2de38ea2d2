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

\a
SHOW SOURCES;
\a
----
Output format is unaligned.
name|type|cluster|status|error
auctions|subsource|quickstart|<status>|
bids|subsource|quickstart|<status>|
sh_s|load-generator|quickstart|<status>|
users|subsource|quickstart|<status>|
(4 rows)
Output format is aligned.

SHOW VIEWS;
----
 name
------
 sh_v
(1 row)

\a
SHOW MATERIALIZED VIEWS;
\a
----
Output format is unaligned.
name|cluster|status|error
sh_m|quickstart|<status>|
(1 row)
Output format is aligned.

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
ERROR:  schema "nowhere" does not exist
LINE 1: SHOW TABLES FROM nowhere;
                         ^

SHOW CLUSTERS;
----
    name    | replicas | status
------------+----------+---------
 quickstart | r1       | running
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
--------------------
 information_schema
 mz_catalog
 mz_internal
 pg_catalog
 public
(5 rows)

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
 cluster_id | t        | text
 schema_id  | t        | text
 owner_id   | t        | text
(7 rows)

SHOW COLUMNS FROM nowhere;
----
ERROR:  relation "nowhere" does not exist
LINE 1: SHOW COLUMNS FROM nowhere;
                          ^

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
LINE 1: SHOW CREATE TABLE sh_v;
                          ^
ERROR:  relation "nowhere" does not exist
LINE 1: SHOW CREATE VIEW nowhere;
                         ^

SHOW INDEXES;
SHOW nonsense;
----
 name | on | cluster | key
------+----+---------+-----
(0 rows)
ERROR:  unrecognized configuration parameter "nonsense"
LINE 1: SHOW nonsense;
             ^

DROP SOURCE sh_s;
DROP TABLE sh_t CASCADE;
SHOW OBJECTS;
----
DROP SOURCE
DROP TABLE
 name | type
------+------
(0 rows)
