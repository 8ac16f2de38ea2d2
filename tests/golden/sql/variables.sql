SHOW transaction_isolation;
SHOW TRANSACTION ISOLATION LEVEL;
SET transaction_isolation = 'serializable';
SHOW transaction_isolation;
RESET transaction_isolation;
SHOW transaction_isolation;
SET transaction_isolation TO 'read committed';
SHOW transaction_isolation;
SET transaction_isolation = 'whatever';
SET transaction_isolation = DEFAULT;
----
 transaction_isolation
-----------------------
 strict serializable
(1 row)
 transaction_isolation
-----------------------
 strict serializable
(1 row)
SET
 transaction_isolation
-----------------------
 serializable
(1 row)
RESET
 transaction_isolation
-----------------------
 strict serializable
(1 row)
SET
 transaction_isolation
-----------------------
 serializable
(1 row)
ERROR:  invalid value for parameter "transaction_isolation": "whatever"
HINT:  available: strict serializable, serializable, repeatable read, read committed, read uncommitted, bounded staleness 5s
SET

SET application_name = 'golden';
SHOW application_name;
SET application_name TO golden_two;
SHOW application_name;
----
SET
 application_name
------------------
 golden
(1 row)
SET
 application_name
------------------
 golden_two
(1 row)

SHOW statement_timeout;
SET statement_timeout = '5s';
SHOW statement_timeout;
SET statement_timeout = 2500;
SHOW statement_timeout;
SET statement_timeout = 'soon';
SET statement_timeout = -1;
RESET statement_timeout;
SHOW statement_timeout;
----
 statement_timeout
-------------------
 0
(1 row)
SET
 statement_timeout
-------------------
 5s
(1 row)
SET
 statement_timeout
-------------------
 2500ms
(1 row)
ERROR:  invalid value for parameter "statement_timeout": "soon"
HINT:  a number of milliseconds, or 500ms, 2s, 1min, 1h
ERROR:  invalid value for parameter "statement_timeout": "-1"
HINT:  a number of milliseconds, or 500ms, 2s, 1min, 1h
RESET
 statement_timeout
-------------------
 0
(1 row)

SET TIME ZONE 'UTC';
SET TIME ZONE 'Europe/Berlin';
SET timezone = 'America/New_York';
SHOW TIME ZONE;
----
SET
ERROR:  invalid value for parameter "timezone": "Europe/Berlin"
HINT:  only utc is supported
ERROR:  invalid value for parameter "timezone": "America/New_York"
HINT:  only utc is supported
 timezone
----------
 UTC
(1 row)

SET client_encoding = 'UTF8';
SET client_encoding = 'LATIN1';
SET NAMES 'UTF8';
SET cluster = quickstart;
SET cluster = other;
SET database = other;
SET search_path = public, pg_catalog;
SHOW search_path;
SET server_version = '17';
----
SET
ERROR:  invalid value for parameter "client_encoding": "LATIN1"
HINT:  only utf8 is supported
SET
SET
ERROR:  unknown cluster "other"
LINE 1: SET cluster = other;
                      ^
HINT:  SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one
ERROR:  database "other" does not exist
LINE 1: SET database = other;
                       ^
HINT:  SHOW DATABASES lists them, CREATE DATABASE makes one
SET
    search_path
--------------------
 public, pg_catalog
(1 row)
ERROR:  parameter "server_version" cannot be changed

SET nothing_known = 1;
SHOW nothing_known;
RESET nothing_known;
----
ERROR:  unrecognized configuration parameter "nothing_known"
LINE 1: SET nothing_known = 1;
            ^
ERROR:  unrecognized configuration parameter "nothing_known"
LINE 1: SHOW nothing_known;
             ^
ERROR:  unrecognized configuration parameter "nothing_known"
LINE 1: RESET nothing_known;
              ^

SET extra_float_digits = 0;
SET DateStyle = 'ISO, DMY';
SHOW datestyle;
SET datestyle = 'German';
----
SET
SET
 datestyle
-----------
 ISO, DMY
(1 row)
ERROR:  invalid value for parameter "datestyle": "German"
HINT:  only iso is supported

-- A setting of a transaction that is rolled back, and SET LOCAL.
BEGIN;
SET LOCAL application_name = 'inside';
SHOW application_name;
COMMIT;
SHOW application_name;
BEGIN;
SET application_name = 'rolled back';
ROLLBACK;
SHOW application_name;
SET LOCAL application_name = 'outside';
SHOW application_name;
----
BEGIN
SET
 application_name
------------------
 inside
(1 row)
COMMIT
 application_name
------------------
 golden_two
(1 row)
BEGIN
SET
ROLLBACK
 application_name
------------------
 golden_two
(1 row)
WARNING:  SET LOCAL has no effect outside a transaction block
SET
 application_name
------------------
 golden_two
(1 row)

-- What drivers send.
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE;
SHOW transaction_isolation;
SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY;
SET TRANSACTION ISOLATION LEVEL STRICT SERIALIZABLE;
BEGIN;
SET TRANSACTION ISOLATION LEVEL STRICT SERIALIZABLE;
SHOW transaction_isolation;
COMMIT;
SHOW transaction_isolation;
SET standard_conforming_strings = on;
SET standard_conforming_strings = off;
DISCARD TEMP;
----
SET
 transaction_isolation
-----------------------
 serializable
(1 row)
ERROR:  sessions that only read are not supported
HINT:  use BEGIN READ ONLY
WARNING:  SET TRANSACTION has no effect outside a transaction block
SET
BEGIN
SET
 transaction_isolation
-----------------------
 strict serializable
(1 row)
COMMIT
 transaction_isolation
-----------------------
 serializable
(1 row)
SET
ERROR:  parameter "standard_conforming_strings" cannot be changed
DISCARD TEMP

RESET ALL;
SHOW ALL;
----
RESET
                name                 |       setting
-------------------------------------+---------------------
 application_name                    | psql
 client_encoding                     | UTF8
 client_min_messages                 | notice
 cluster                             | quickstart
 database                            | tidemark
 datestyle                           | ISO, MDY
 dialect                             | postgres
 extra_float_digits                  | 3
 idle_in_transaction_session_timeout | 2min
 idle_session_timeout                | 0
 intervalstyle                       | postgres
 log_min_duration_statement          | 10s
 max_connections                     | 5000
 max_copy_from_size                  | 1GB
 max_memory                          | 4GB
 max_result_size                     | 1GB
 password_encryption                 | scram-sha-256
 real_time_recency                   | off
 real_time_recency_timeout           | 10s
 role                                | none
 search_path                         | public
 server_version                      | 16.0
 server_version_num                  | 160000
 standard_conforming_strings         | on
 statement_timeout                   | 0
 timezone                            | UTC
 transaction_isolation               | strict serializable
(27 rows)

DISCARD ALL;
SELECT current_database(), current_user, version();
----
DISCARD ALL
 current_database | current_user |             version
------------------+--------------+----------------------------------
 tidemark         | tidemark     | PostgreSQL 16.0 (Tidemark 0.1.0)
(1 row)

SET transaction_isolation = 'Bounded  Staleness 5s';
SHOW transaction_isolation;
SELECT count(*) FROM mz_objects WHERE name = 'none';
SET transaction_isolation = 'bounded staleness';
SET transaction_isolation = 'bounded staleness 0s';
SET transaction_isolation = 'bounded staleness soon';
RESET transaction_isolation;
----
SET
 transaction_isolation
-----------------------
 bounded staleness 5s
(1 row)
 count
-------
     0
(1 row)
ERROR:  invalid value for parameter "transaction_isolation": "bounded staleness"
HINT:  available: strict serializable, serializable, repeatable read, read committed, read uncommitted, bounded staleness 5s
ERROR:  invalid value for parameter "transaction_isolation": "bounded staleness 0s"
HINT:  available: strict serializable, serializable, repeatable read, read committed, read uncommitted, bounded staleness 5s
ERROR:  invalid value for parameter "transaction_isolation": "bounded staleness soon"
HINT:  available: strict serializable, serializable, repeatable read, read committed, read uncommitted, bounded staleness 5s
RESET
