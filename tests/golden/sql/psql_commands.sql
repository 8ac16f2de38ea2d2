-- What psql's backslash commands ask of pg_catalog.
CREATE TABLE pc_orders (id int NOT NULL, customer text NOT NULL, amount numeric(10,2), tags text[], at timestamptz);
CREATE VIEW pc_large AS SELECT id, customer FROM pc_orders WHERE amount > 100;
CREATE MATERIALIZED VIEW pc_totals AS SELECT customer, sum(amount) AS total, count(*) AS orders FROM pc_orders GROUP BY customer;
CREATE INDEX pc_by_customer ON pc_totals (customer);
CREATE TABLE "pc_Odd name" ("A b" int);
----
CREATE TABLE
CREATE VIEW
CREATE MATERIALIZED VIEW
CREATE INDEX
CREATE TABLE

-- Lists.
\d pc_*
\dt pc_*
\dv pc_*
\dm pc_*
\di pc_*
\dt public.pc_o*
\ds
\dn
\dn pub*
\df
\dT
\dT int8
\dx
\dp pc_orders
----
            Table "public.pc_Odd name"
 Column |  Type   | Collation | Nullable | Default
--------+---------+-----------+----------+---------
 A b    | integer |           |          |
    Index "public.pc_by_customer"
  Column  | Type | Key? | Definition
----------+------+------+------------
 customer | text | yes  | customer
btree, for table "public.pc_totals"
               View "public.pc_large"
  Column  |  Type   | Collation | Nullable | Default
----------+---------+-----------+----------+---------
 id       | integer |           |          |
 customer | text    |           |          |
                       Table "public.pc_orders"
  Column  |           Type           | Collation | Nullable | Default
----------+--------------------------+-----------+----------+---------
 id       | integer                  |           | not null |
 customer | text                     |           | not null |
 amount   | numeric(10,2)            |           |          |
 tags     | text[]                   |           |          |
 at       | timestamp with time zone |           |          |
           Materialized view "public.pc_totals"
  Column  |     Type      | Collation | Nullable | Default
----------+---------------+-----------+----------+---------
 customer | text          |           |          |
 total    | numeric(38,2) |           |          |
 orders   | bigint        |           |          |
Indexes:
    "pc_by_customer" btree (customer)
            List of relations
 Schema |    Name     | Type  |  Owner
--------+-------------+-------+----------
 public | pc_Odd name | table | tidemark
 public | pc_orders   | table | tidemark
(2 rows)
          List of relations
 Schema |   Name   | Type |  Owner
--------+----------+------+----------
 public | pc_large | view | tidemark
(1 row)
                 List of relations
 Schema |   Name    |       Type        |  Owner
--------+-----------+-------------------+----------
 public | pc_totals | materialized view | tidemark
(1 row)
                   List of relations
 Schema |      Name      | Type  |  Owner   |   Table
--------+----------------+-------+----------+-----------
 public | pc_by_customer | index | tidemark | pc_totals
(1 row)
           List of relations
 Schema |   Name    | Type  |  Owner
--------+-----------+-------+----------
 public | pc_orders | table | tidemark
(1 row)
Did not find any relations.
    List of schemas
    Name     |  Owner
-------------+----------
 mz_catalog  | tidemark
 mz_internal | tidemark
 public      | tidemark
(3 rows)
  List of schemas
  Name  |  Owner
--------+----------
 public | tidemark
(1 row)
                       List of functions
 Schema | Name | Result data type | Argument data types | Type
--------+------+------------------+---------------------+------
(0 rows)
     List of data types
 Schema | Name | Description
--------+------+-------------
(0 rows)
        List of data types
   Schema   |  Name  | Description
------------+--------+-------------
 pg_catalog | bigint |
(1 row)
     List of installed extensions
 Name | Version | Schema | Description
------+---------+--------+-------------
(0 rows)
                               Access privileges
 Schema |   Name    | Type  | Access privileges | Column privileges | Policies
--------+-----------+-------+-------------------+-------------------+----------
 public | pc_orders | table |                   |                   |
(1 row)

-- One relation, and more of it.
\d pc_orders
\d+ pc_orders
\d pc_large
\d+ pc_large
\d pc_totals
\d+ pc_totals
\d pc_by_customer
\d "pc_Odd name"
\d public."pc_Odd name"
\d pc_nothing
\sv pc_large
\echo
----
                       Table "public.pc_orders"
  Column  |           Type           | Collation | Nullable | Default
----------+--------------------------+-----------+----------+---------
 id       | integer                  |           | not null |
 customer | text                     |           | not null |
 amount   | numeric(10,2)            |           |          |
 tags     | text[]                   |           |          |
 at       | timestamp with time zone |           |          |
                                                  Table "public.pc_orders"
  Column  |           Type           | Collation | Nullable | Default | Storage  | Compression | Stats target | Description
----------+--------------------------+-----------+----------+---------+----------+-------------+--------------+-------------
 id       | integer                  |           | not null |         | plain    |             |              |
 customer | text                     |           | not null |         | extended |             |              |
 amount   | numeric(10,2)            |           |          |         | main     |             |              |
 tags     | text[]                   |           |          |         | extended |             |              |
 at       | timestamp with time zone |           |          |         | plain    |             |              |
Access method: heap
               View "public.pc_large"
  Column  |  Type   | Collation | Nullable | Default
----------+---------+-----------+----------+---------
 id       | integer |           |          |
 customer | text    |           |          |
                            View "public.pc_large"
  Column  |  Type   | Collation | Nullable | Default | Storage  | Description
----------+---------+-----------+----------+---------+----------+-------------
 id       | integer |           |          |         | plain    |
 customer | text    |           |          |         | extended |
View definition:
 SELECT id, customer FROM pc_orders WHERE amount > 100;
           Materialized view "public.pc_totals"
  Column  |     Type      | Collation | Nullable | Default
----------+---------------+-----------+----------+---------
 customer | text          |           |          |
 total    | numeric(38,2) |           |          |
 orders   | bigint        |           |          |
Indexes:
    "pc_by_customer" btree (customer)
                                      Materialized view "public.pc_totals"
  Column  |     Type      | Collation | Nullable | Default | Storage  | Compression | Stats target | Description
----------+---------------+-----------+----------+---------+----------+-------------+--------------+-------------
 customer | text          |           |          |         | extended |             |              |
 total    | numeric(38,2) |           |          |         | main     |             |              |
 orders   | bigint        |           |          |         | plain    |             |              |
Indexes:
    "pc_by_customer" btree (customer)
View definition:
 SELECT customer, sum(amount) AS total, count(*) AS orders FROM pc_orders GROUP BY customer;
Access method: heap
    Index "public.pc_by_customer"
  Column  | Type | Key? | Definition
----------+------+------+------------
 customer | text | yes  | customer
btree, for table "public.pc_totals"
            Table "public.pc_Odd name"
 Column |  Type   | Collation | Nullable | Default
--------+---------+-----------+----------+---------
 A b    | integer |           |          |
            Table "public.pc_Odd name"
 Column |  Type   | Collation | Nullable | Default
--------+---------+-----------+----------+---------
 A b    | integer |           |          |
Did not find any relation named "pc_nothing".
CREATE OR REPLACE VIEW public.pc_large AS
 SELECT id, customer FROM pc_orders WHERE amount > 100

-- System relations are relations, too.
\d mz_catalog.mz_objects
\d information_schema.schemata
\d pg_namespace
\dv mz_internal.mz_f*
----
            View "mz_catalog.mz_objects"
   Column   | Type | Collation | Nullable | Default
------------+------+-----------+----------+---------
 id         | text |           |          |
 name       | text |           |          |
 type       | text |           |          |
 create_sql | text |           |          |
 cluster_id | text |           |          |
 schema_id  | text |           |          |
 owner_id   | text |           |          |
                  View "information_schema.schemata"
            Column             | Type | Collation | Nullable | Default
-------------------------------+------+-----------+----------+---------
 catalog_name                  | name |           |          |
 schema_name                   | name |           |          |
 schema_owner                  | name |           |          |
 default_character_set_catalog | name |           |          |
 default_character_set_schema  | name |           |          |
 default_character_set_name    | name |           |          |
 sql_path                      | text |           |          |
           View "pg_catalog.pg_namespace"
  Column  |  Type  | Collation | Nullable | Default
----------+--------+-----------+----------+---------
 oid      | oid    |           |          |
 nspname  | name   |           |          |
 nspowner | oid    |           |          |
 nspacl   | text[] |           |          |
              List of relations
   Schema    |     Name     | Type |  Owner
-------------+--------------+------+----------
 mz_internal | mz_frontiers | view | tidemark
(1 row)

-- Casts between names and oids.
SELECT 'pc_orders'::regclass, 'public.pc_orders'::regclass::text, 'pc_orders'::regclass::oid = oid AS same FROM pg_class WHERE relname = 'pc_orders';
SELECT oid::regclass FROM pg_class WHERE relname LIKE 'pc\_%' ORDER BY relname;
SELECT to_regclass('pc_orders'), to_regclass('pc_nothing'), 23::regtype, 'timestamptz'::regtype::oid;
SELECT attname, atttypid::regtype, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = '"pc_Odd name"'::regclass OR attrelid = 'pc_orders'::regclass ORDER BY attrelid, attnum;
SELECT 'pc_nothing'::regclass;
SELECT 'nothing'::regtype;
----
 regclass  |   text    | same
-----------+-----------+------
 pc_orders | pc_orders | t
(1 row)
      oid
----------------
 "pc_Odd name"
 pc_by_customer
 pc_large
 pc_orders
 pc_totals
(5 rows)
 to_regclass | to_regclass | regtype | oid
-------------+-------------+---------+------
 pc_orders   |             | integer | 1184
(1 row)
 attname  |         atttypid         |       format_type
----------+--------------------------+--------------------------
 id       | integer                  | integer
 customer | text                     | text
 amount   | numeric                  | numeric(10,2)
 tags     | text[]                   | text[]
 at       | timestamp with time zone | timestamp with time zone
 A b      | integer                  | integer
(6 rows)
ERROR:  relation "pc_nothing" does not exist
ERROR:  type "nothing" does not exist

-- The views of pg_catalog, and information_schema.
SELECT schemaname, tablename, tableowner, hasindexes FROM pg_tables WHERE tablename LIKE 'pc\_%' ORDER BY 2;
SELECT viewname, definition FROM pg_views WHERE schemaname = 'public' AND viewname LIKE 'pc\_%';
SELECT matviewname, hasindexes, definition FROM pg_matviews WHERE matviewname LIKE 'pc\_%';
SELECT tablename, indexname, indexdef FROM pg_indexes WHERE indexname LIKE 'pc\_%';
SELECT table_catalog, table_schema, table_name, table_type, is_insertable_into FROM information_schema.tables WHERE table_name LIKE 'pc\_%' ORDER BY 3;
SELECT column_name, ordinal_position AS at, is_nullable, data_type, numeric_precision AS p, numeric_scale AS s, udt_name FROM information_schema.columns WHERE table_name = 'pc_orders' ORDER BY 2;
SELECT count(*) FROM information_schema.table_constraints;
SELECT d.refobjid::regclass AS read, r.ev_class::regclass AS by FROM pg_depend d JOIN pg_rewrite r ON d.objid = r.oid WHERE d.refobjid = 'pc_orders'::regclass ORDER BY 2;
----
 schemaname |  tablename  | tableowner | hasindexes
------------+-------------+------------+------------
 public     | pc_Odd name | tidemark   | f
 public     | pc_orders   | tidemark   | f
(2 rows)
 viewname |                       definition
----------+---------------------------------------------------------
 pc_large |  SELECT id, customer FROM pc_orders WHERE amount > 100;
(1 row)
 matviewname | hasindexes |                                          definition
-------------+------------+----------------------------------------------------------------------------------------------
 pc_totals   | t          |  SELECT customer, sum(amount) AS total, count(*) AS orders FROM pc_orders GROUP BY customer;
(1 row)
 tablename |   indexname    |                                indexdef
-----------+----------------+------------------------------------------------------------------------
 pc_totals | pc_by_customer | CREATE INDEX pc_by_customer ON public.pc_totals USING btree (customer)
(1 row)
 table_catalog | table_schema | table_name  |    table_type     | is_insertable_into
---------------+--------------+-------------+-------------------+--------------------
 tidemark      | public       | pc_Odd name | BASE TABLE        | YES
 tidemark      | public       | pc_large    | VIEW              | NO
 tidemark      | public       | pc_orders   | BASE TABLE        | YES
 tidemark      | public       | pc_totals   | MATERIALIZED VIEW | NO
(4 rows)
 column_name | at | is_nullable |        data_type         | p  | s |  udt_name
-------------+----+-------------+--------------------------+----+---+-------------
 id          |  1 | NO          | integer                  | 32 | 0 | int4
 customer    |  2 | NO          | text                     |    |   | text
 amount      |  3 | YES         | numeric                  | 10 | 2 | numeric
 tags        |  4 | YES         | ARRAY                    |    |   | _text
 at          |  5 | YES         | timestamp with time zone |    |   | timestamptz
(5 rows)
 count
-------
     0
(1 row)
   read    |    by
-----------+-----------
 pc_orders | pc_large
 pc_orders | pc_totals
(2 rows)

-- What the session answers.
SELECT current_schemas(true), current_setting('server_version_num'), current_setting('nothing', true) IS NULL AS missing;
SELECT set_config('application_name', 'pc', false);
SELECT name, setting, source FROM pg_settings WHERE name IN ('application_name', 'cluster') ORDER BY name;
SELECT set_config('nothing', 'x', false);
SELECT pg_catalog.pg_get_userbyid(10), has_table_privilege('pc_orders', 'SELECT'), pg_is_in_recovery();
----
   current_schemas   | current_setting | missing
---------------------+-----------------+---------
 {pg_catalog,public} | 160000          | t
(1 row)
 set_config
------------
 pc
(1 row)
       name       |  setting   | source
------------------+------------+---------
 application_name | pc         | session
 cluster          | quickstart | default
(2 rows)
ERROR:  unrecognized configuration parameter "nothing"
 pg_get_userbyid | has_table_privilege | pg_is_in_recovery
-----------------+---------------------+-------------------
 tidemark        | t                   | f
(1 row)

-- Results have PostgreSQL's types, and errors its codes.
SELECT relname, relnatts, oid > 16384 AS free FROM pg_class WHERE relname = 'pc_orders' \gdesc
SELECT count(*), sum(relnatts), avg(relnatts) AS average, 7 / 2 AS half, array_agg(relname ORDER BY relname) AS names FROM pg_class WHERE relname LIKE 'pc\_%';
SELECT oid, relname FROM pg_class ORDER BY relpartbound DESC LIMIT 0;
\set VERBOSITY sqlstate
SELECT nothing FROM pg_class;
SELECT c.nothing FROM pg_class c;
SELECT nothing(oid) FROM pg_class;
SELECT * FROM pg_nothing;
SELECT 'x'::int FROM pg_class;
SELECT oid, count(*) FROM pg_class;
\set VERBOSITY default
SELECT nothing FROM pg_class;
----
  Column  |   Type
----------+----------
 relname  | text
 relnatts | smallint
 free     | boolean
(3 rows)
 count | sum | average | half |                            names
-------+-----+---------+------+-------------------------------------------------------------
     5 |  12 |     2.4 |    3 | {"pc_Odd name",pc_by_customer,pc_large,pc_orders,pc_totals}
(1 row)
 oid | relname
-----+---------
(0 rows)
ERROR:  42703
ERROR:  42703
ERROR:  42883
ERROR:  42P01
ERROR:  22P02
ERROR:  42803
ERROR:  column "nothing" does not exist
LINE 1: SELECT nothing FROM pg_class;
               ^

-- With a collection of the user's, the query is planned like any other.
INSERT INTO pc_orders VALUES (1, 'a', 10, NULL, NULL);
SELECT c.relname, o.customer FROM pg_class c, pc_orders o WHERE c.relname = 'pc_orders';
CREATE VIEW pc_names AS SELECT relname FROM pg_catalog.pg_class WHERE relname = 'pc_large';
SELECT * FROM pc_names;
----
INSERT 0 1
  relname  | customer
-----------+----------
 pc_orders | a
(1 row)
CREATE VIEW
 relname
----------
 pc_large
(1 row)

-- A transaction that writes may look at the catalog.
BEGIN;
INSERT INTO pc_orders VALUES (2, 'b', 20, NULL, NULL);
SELECT count(*) FROM pg_class WHERE relname = 'pc_orders';
COMMIT;
SELECT count(*) FROM pc_orders;
----
BEGIN
INSERT 0 1
 count
-------
     1
(1 row)
COMMIT
 count
-------
     2
(1 row)

DROP VIEW pc_names;
DROP INDEX pc_by_customer;
DROP MATERIALIZED VIEW pc_totals;
DROP VIEW pc_large;
DROP TABLE pc_orders, "pc_Odd name";
\d pc_*
----
DROP VIEW
DROP INDEX
DROP MATERIALIZED VIEW
DROP VIEW
DROP TABLE
Did not find any relation named "pc_*".
