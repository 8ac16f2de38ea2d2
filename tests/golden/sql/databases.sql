-- Databases: each a timeline of its own.
CREATE DATABASE db_a;
CREATE DATABASE IF NOT EXISTS db_a;
CREATE DATABASE db_a;
CREATE DATABASE db_b WITH OWNER me;
SHOW DATABASES;
SELECT datname FROM pg_database WHERE datname LIKE 'db%';
SELECT name FROM mz_databases ORDER BY 1;
SHOW SCHEMAS FROM db_a;
SHOW SCHEMAS FROM db_none;
----
CREATE DATABASE
NOTICE:  database "db_a" already exists, skipping
CREATE DATABASE
ERROR:  database "db_a" already exists
ERROR:  options of CREATE DATABASE are not supported
HINT:  leave them out
   name
----------
 tidemark
 db_a
(2 rows)
 datname
---------
 db_a
(1 row)
   name
----------
 db_a
 tidemark
(2 rows)
        name
--------------------
 information_schema
 mz_catalog
 mz_internal
 pg_catalog
 public
(5 rows)
ERROR:  database "db_none" does not exist
LINE 1: SHOW SCHEMAS FROM db_none;
                          ^
HINT:  SHOW DATABASES lists them, CREATE DATABASE makes one

-- Its objects, by their full names, and from within.
CREATE TABLE db_a.public.db_t (id int, word text);
CREATE TABLE db_t (id int, word text);
CREATE SCHEMA db_a.db_s;
INSERT INTO db_a.public.db_t VALUES (1, 'in db_a');
INSERT INTO db_t VALUES (2, 'in tidemark');
SELECT * FROM db_a.public.db_t;
SELECT * FROM db_t;
SET database = db_a;
SELECT current_database(), current_catalog, current_schema();
SHOW database;
SELECT * FROM db_t;
SELECT * FROM tidemark.public.db_t;
UPDATE db_t SET word = upper(word);
CREATE MATERIALIZED VIEW db_s.db_words AS SELECT word, count(*) FROM db_t GROUP BY word;
CREATE INDEX ON db_s.db_words (word);
SELECT * FROM db_s.db_words;
SHOW TABLES;
SHOW INDEXES ON db_s.db_words;
\dt
\dn
SELECT table_catalog, table_schema, table_name FROM information_schema.tables WHERE table_name LIKE 'db%' ORDER BY 3;
SET database = db_none;
----
CREATE TABLE
CREATE TABLE
CREATE SCHEMA
INSERT 0 1
INSERT 0 1
 id |  word
----+---------
  1 | in db_a
(1 row)
 id |    word
----+-------------
  2 | in tidemark
(1 row)
SET
 current_database | current_catalog | current_schema
------------------+-----------------+----------------
 db_a             | db_a            | public
(1 row)
 database
----------
 db_a
(1 row)
 id |  word
----+---------
  1 | in db_a
(1 row)
 id |    word
----+-------------
  2 | in tidemark
(1 row)
UPDATE 1
CREATE MATERIALIZED VIEW
CREATE INDEX
  word   | count
---------+-------
 IN DB_A |     1
(1 row)
 name
------
 db_t
(1 row)
       name        |    on    |  cluster   | key
-------------------+----------+------------+------
 db_words_word_idx | db_words | quickstart | word
(1 row)
        List of relations
 Schema | Name | Type  |  Owner
--------+------+-------+----------
 public | db_t | table | tidemark
(1 row)
    List of schemas
    Name     |  Owner
-------------+----------
 db_s        | tidemark
 mz_catalog  | tidemark
 mz_internal | tidemark
 public      | tidemark
(4 rows)
 table_catalog | table_schema | table_name
---------------+--------------+------------
 db_a          | public       | db_t
 db_a          | db_s         | db_words
(2 rows)
ERROR:  database "db_none" does not exist
LINE 1: SET database = db_none;
                       ^
HINT:  SHOW DATABASES lists them, CREATE DATABASE makes one

-- In psql.
\c db_a
SELECT * FROM db_t;
\dt
\d db_s.db_words
\c tidemark
\dt db_*
----
You are now connected to database "db_a" as user "tidemark".
 id |  word
----+---------
  1 | IN DB_A
(1 row)
        List of relations
 Schema | Name | Type  |  Owner
--------+------+-------+----------
 public | db_t | table | tidemark
(1 row)
        Materialized view "db_s.db_words"
 Column |  Type  | Collation | Nullable | Default
--------+--------+-----------+----------+---------
 word   | text   |           |          |
 count  | bigint |           |          |
Indexes:
    "db_words_word_idx" btree (word)
You are now connected to database "tidemark" as user "tidemark".
        List of relations
 Schema | Name | Type  |  Owner
--------+------+-------+----------
 public | db_t | table | tidemark
(1 row)

-- Two timelines do not meet.
SELECT * FROM db_t, db_a.public.db_t AS other;
SELECT * FROM db_t WHERE id IN (SELECT id FROM db_a.public.db_t);
CREATE VIEW db_v AS SELECT * FROM db_a.public.db_t;
CREATE MATERIALIZED VIEW db_a.public.db_v AS SELECT * FROM db_t;
INSERT INTO db_t SELECT * FROM db_a.public.db_t;
SUBSCRIBE (SELECT db_t.id FROM db_t JOIN db_a.public.db_t AS o ON o.id = db_t.id);
BEGIN;
SELECT * FROM db_t;
SELECT * FROM db_a.public.db_t;
ROLLBACK;
BEGIN;
INSERT INTO db_t VALUES (3, 'never');
INSERT INTO db_a.public.db_t VALUES (3, 'never');
COMMIT;
SELECT * FROM db_t;
ALTER TABLE db_t SET SCHEMA db_a.public;
SELECT * FROM db_a.pg_catalog.pg_class;
----
ERROR:  relations of databases "tidemark" and "db_a" cannot be used together: each database is a timeline of its own, and there is no time at which both can be read
HINT:  keep what is used together in schemas of one database
ERROR:  relations of databases "tidemark" and "db_a" cannot be used together: each database is a timeline of its own, and there is no time at which both can be read
HINT:  keep what is used together in schemas of one database
ERROR:  relations of databases "tidemark" and "db_a" cannot be used together: each database is a timeline of its own, and there is no time at which both can be read
HINT:  keep what is used together in schemas of one database
ERROR:  relations of databases "db_a" and "tidemark" cannot be used together: each database is a timeline of its own, and there is no time at which both can be read
HINT:  keep what is used together in schemas of one database
ERROR:  relations of databases "tidemark" and "db_a" cannot be used together: each database is a timeline of its own, and there is no time at which both can be read
HINT:  keep what is used together in schemas of one database
ERROR:  relations of databases "tidemark" and "db_a" cannot be used together: each database is a timeline of its own, and there is no time at which both can be read
HINT:  keep what is used together in schemas of one database
BEGIN
 id |    word
----+-------------
  2 | in tidemark
(1 row)
ERROR:  relations of databases "tidemark" and "db_a" cannot be used together: each database is a timeline of its own, and there is no time at which both can be read
HINT:  keep what is used together in schemas of one database
ROLLBACK
BEGIN
INSERT 0 1
ERROR:  relations of databases "tidemark" and "db_a" cannot be used together: each database is a timeline of its own, and there is no time at which both can be read
HINT:  keep what is used together in schemas of one database
ROLLBACK
 id |    word
----+-------------
  2 | in tidemark
(1 row)
ERROR:  "db_t" cannot move to database "db_a": that is another timeline
HINT:  create it there anew
ERROR:  relation "db_a.pg_catalog.pg_class" does not exist
LINE 1: SELECT * FROM db_a.pg_catalog.pg_class;
                      ^
HINT:  did you mean pg_class or pg_opclass or pg_cast?

-- One of them in one transaction is fine, wherever the session is.
BEGIN;
INSERT INTO db_a.public.db_t VALUES (4, 'four');
INSERT INTO db_a.public.db_t VALUES (5, 'five');
COMMIT;
SELECT * FROM db_a.public.db_t ORDER BY id;
EXPLAIN TIMESTAMP FOR SELECT * FROM db_a.public.db_t;
----
BEGIN
INSERT 0 1
INSERT 0 1
COMMIT
 id |  word
----+---------
  1 | IN DB_A
  4 | four
  5 | five
(3 rows)
                             plan
--------------------------------------------------------------
                 query timestamp: <time>
           oracle read timestamp: <time>
 largest not in advance of upper: <time>
                           upper: [<time>]
                           since: [<time>]
         can respond immediately: <true or false>
                        timeline: EpochMilliseconds of db_a
 source db_a.public.db_t (<id>):
                   read frontier: [<time>]
                  write frontier: [<time>]
 binding constraints:
   strict serializable: not before the oracle's <time>
(12 rows)

-- Account and region.
SHOW ACCOUNT;
SHOW REGIONS;
SELECT * FROM mz_regions;
SELECT * FROM local.tidemark.public.db_t;
SELECT * FROM eu.tidemark.public.db_t;
INSERT INTO eu.tidemark.public.db_t VALUES (1, 'x');
SELECT * FROM a.b.c.d.e;
----
 account
----------
 tidemark
(1 row)
 name
-------
 local
(1 row)
 account  | name
----------+-------
 tidemark | local
(1 row)
 id |    word
----+-------------
  2 | in tidemark
(1 row)
ERROR:  this server serves region "local", not "eu": data does not cross regions
LINE 1: SELECT * FROM eu.tidemark.public.db_t;
                      ^
HINT:  connect to a server of region "eu", or send the data there with a sink
ERROR:  this server serves region "local", not "eu": data does not cross regions
HINT:  connect to a server of region "eu", or send the data there with a sink
ERROR:  improper qualified name (too many dotted names): a.b.c.d.e
LINE 1: SELECT * FROM a.b.c.d.e;
                      ^

-- Gone.
DROP DATABASE db_a RESTRICT;
SET database = db_a;
DROP DATABASE db_a;
SET database = tidemark;
DROP DATABASE db_a;
DROP DATABASE db_a;
DROP DATABASE IF EXISTS db_a;
DROP DATABASE tidemark;
DROP TABLE db_t;
SHOW DATABASES;
----
ERROR:  cannot drop database "db_a" because other objects are in it: db_a.db_s.db_words, db_a.db_s.db_words_word_idx, db_a.public.db_t
HINT:  leave RESTRICT out
SET
ERROR:  cannot drop the currently open database
HINT:  SET database = tidemark first
SET
DROP DATABASE
ERROR:  database "db_a" does not exist
LINE 1: DROP DATABASE db_a;
                      ^
HINT:  SHOW DATABASES lists them, CREATE DATABASE makes one
NOTICE:  database "db_a" does not exist, skipping
DROP DATABASE
ERROR:  database "tidemark" is the first one and cannot be dropped
HINT:  drop its schemas, if it shall be empty
DROP TABLE
   name
----------
 tidemark
(1 row)
