-- Roles and who is in them.
CREATE ROLE ro_readers;
CREATE USER ro_alice;
CREATE ROLE ro_bob WITH LOGIN CREATEROLE CREATECLUSTER PASSWORD 'hush';
CREATE ROLE ro_bob;
CREATE ROLE public;
GRANT ro_readers TO ro_alice, ro_bob;
GRANT ro_alice TO ro_readers;
REVOKE ro_readers FROM ro_bob;
\du ro_*
SELECT rolname, rolcanlogin, rolcreaterole, rolpassword FROM pg_roles WHERE rolname LIKE 'ro\_%' ORDER BY 1;
SELECT r.name AS role, m.name AS member FROM mz_role_members JOIN mz_roles r ON r.id = role_id JOIN mz_roles m ON m.id = member;
----
CREATE ROLE
CREATE ROLE
CREATE ROLE
ERROR:  role "ro_bob" already exists
ERROR:  role name "public" is reserved
GRANT ROLE
ERROR:  role "ro_alice" is a member of role "ro_readers": it cannot be the other way round, too
HINT:  REVOKE ro_readers FROM ro_alice first
REVOKE ROLE
              List of roles
 Role name  |  Attributes  |  Member of
------------+--------------+--------------
 ro_alice   |              | {ro_readers}
 ro_bob     | Create role  | {}
 ro_readers | Cannot login | {}
  rolname   | rolcanlogin | rolcreaterole | rolpassword
------------+-------------+---------------+-------------
 ro_alice   | t           | f             | ********
 ro_bob     | t           | t             | ********
 ro_readers | f           | f             | ********
(3 rows)
    role    |  member
------------+----------
 ro_readers | ro_alice
(1 row)

-- Owners and privileges.
CREATE TABLE ro_t (a int);
CREATE VIEW ro_v AS SELECT a FROM ro_t;
GRANT SELECT, INSERT ON ro_t TO ro_readers;
GRANT ALL ON TABLE ro_v TO ro_alice, PUBLIC;
GRANT USAGE ON CLUSTER ro_none TO ro_alice;
GRANT USAGE ON ro_t TO ro_alice;
ALTER VIEW ro_v OWNER TO ro_bob;
\dp ro_*
\dt ro_*
\dv ro_*
SHOW PRIVILEGES FOR ro_readers;
SELECT has_table_privilege('ro_alice', 'ro_t', 'INSERT') AS inserts, has_table_privilege('ro_alice', 'ro_t', 'DELETE') AS deletes;
\dn+
----
CREATE TABLE
CREATE VIEW
GRANT
GRANT
ERROR:  unknown cluster "ro_none"
LINE 1: GRANT USAGE ON CLUSTER ro_none TO ro_alice;
                               ^
HINT:  SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one
ERROR:  invalid privilege type USAGE for table
HINT:  a table has SELECT, INSERT, UPDATE, DELETE
ALTER VIEW
                               Access privileges
 Schema | Name | Type  |   Access privileges    | Column privileges | Policies
--------+------+-------+------------------------+-------------------+----------
 public | ro_t | table | tidemark=arwd/tidemark+|                   |
        |      |       | ro_readers=ar/tidemark |                   |
 public | ro_v | view  | ro_bob=arwd/ro_bob    +|                   |
        |      |       | ro_alice=arwd/ro_bob  +|                   |
        |      |       | =arwd/ro_bob           |                   |
(2 rows)
        List of relations
 Schema | Name | Type  |  Owner
--------+------+-------+----------
 public | ro_t | table | tidemark
(1 row)
       List of relations
 Schema | Name | Type | Owner
--------+------+------+--------
 public | ro_v | view | ro_bob
(1 row)
 grantor  |  grantee   | name | object_type | privilege_type
----------+------------+------+-------------+----------------
 tidemark | ro_readers | ro_t | table       | SELECT
 tidemark | ro_readers | ro_t | table       | INSERT
(2 rows)
 inserts | deletes
---------+---------
 t       | f
(1 row)
                       List of schemas
    Name     |  Owner   |  Access privileges   | Description
-------------+----------+----------------------+-------------
 mz_catalog  | tidemark | tidemark=UC/tidemark+|
             |          | =U/tidemark          |
 mz_internal | tidemark | tidemark=UC/tidemark+|
             |          | =U/tidemark          |
 public      | tidemark | tidemark=UC/tidemark+|
             |          | =UC/tidemark         |
(3 rows)

-- As somebody else.
SET ROLE ro_alice;
SELECT current_user, session_user;
EXPLAIN SELECT * FROM ro_t;
DELETE FROM ro_t;
DROP TABLE ro_t;
CREATE CLUSTER ro_c;
SET ROLE ro_bob;
SHOW role;
RESET ROLE;
SELECT current_user = session_user AS same;
BEGIN;
SET LOCAL ROLE ro_alice;
SELECT current_role;
COMMIT;
SELECT current_role = session_user AS same;
----
SET
 current_user | session_user
--------------+--------------
 ro_alice     | tidemark
(1 row)
                      plan
------------------------------------------------
 Project (#0)
   Get ro_t (a)
 Answered without Spark: ro_t read, it is small
(3 rows)
ERROR:  permission denied for table ro_t
HINT:  GRANT DELETE ON TABLE ro_t TO ro_alice
ERROR:  must be owner of table ro_t
HINT:  it is tidemark's: ALTER TABLE ro_t OWNER TO ro_alice
ERROR:  permission denied to create cluster
HINT:  ALTER ROLE ro_alice CREATECLUSTER, by a superuser
SET
  role
--------
 ro_bob
(1 row)
RESET
 same
------
 t
(1 row)
BEGIN
SET
 current_role
--------------
 ro_alice
(1 row)
COMMIT
 same
------
 t
(1 row)

-- Of one's own, and by another connection.
\c - ro_alice
CREATE TABLE ro_mine (a int);
SELECT * FROM ro_t;
INSERT INTO ro_t VALUES (1);
UPDATE ro_t SET a = 2;
GRANT SELECT ON ro_t TO ro_bob;
SELECT count(*) FROM mz_internal.mz_recent_activity_log;
SHOW CREATE TABLE ro_mine;
SET ROLE tidemark;
ALTER ROLE ro_alice SUPERUSER;
ALTER ROLE ro_alice SET statement_timeout = '1h';
\c - tidemark
----
You are now connected to database "tidemark" as user "ro_alice".
CREATE TABLE
 a
---
(0 rows)
INSERT 0 1
ERROR:  permission denied for table ro_t
HINT:  GRANT UPDATE ON TABLE ro_t TO ro_alice
ERROR:  must be owner of table ro_t
HINT:  it is tidemark's: ALTER TABLE ro_t OWNER TO ro_alice
ERROR:  permission denied for view mz_recent_activity_log
HINT:  it shows what others have asked, and is for superusers
  name   |          create_sql
---------+------------------------------
 ro_mine | CREATE TABLE ro_mine (a int)
(1 row)
ERROR:  permission denied to set role "tidemark"
HINT:  SET ROLE is for members of a role; RESET ROLE goes back to who has connected
ERROR:  permission denied to alter role
HINT:  ALTER ROLE ro_alice CREATEROLE, by a superuser
ALTER ROLE
You are now connected to database "tidemark" as user "tidemark".

-- A role goes when nothing is left of it.
DROP ROLE ro_alice;
REASSIGN OWNED BY ro_alice TO tidemark;
DROP ROLE ro_alice;
DROP OWNED BY ro_alice, ro_readers;
DROP ROLE ro_alice, ro_readers;
DROP ROLE IF EXISTS ro_alice;
DROP OWNED BY ro_bob;
DROP ROLE ro_bob;
DROP ROLE tidemark;
DROP TABLE ro_mine;
DROP TABLE ro_t CASCADE;
SHOW PRIVILEGES;
----
ERROR:  role "ro_alice" cannot be dropped because some objects depend on it: privileges for view ro_v, owner of table ro_mine
HINT:  REASSIGN OWNED BY ro_alice TO another role, then DROP OWNED BY ro_alice, which takes its privileges away
REASSIGN OWNED
ERROR:  role "ro_alice" cannot be dropped because some objects depend on it: privileges for view ro_v
HINT:  REASSIGN OWNED BY ro_alice TO another role, then DROP OWNED BY ro_alice, which takes its privileges away
DROP OWNED
DROP ROLE
NOTICE:  role "ro_alice" does not exist, skipping
DROP ROLE
DROP OWNED
DROP ROLE
ERROR:  role "tidemark" cannot be dropped
DROP TABLE
DROP TABLE
 grantor  | grantee |    name    | object_type | privilege_type
----------+---------+------------+-------------+----------------
 tidemark | PUBLIC  | quickstart | cluster     | USAGE
 tidemark | PUBLIC  | quickstart | cluster     | CREATE
 tidemark | PUBLIC  | public     | schema      | USAGE
 tidemark | PUBLIC  | public     | schema      | CREATE
 tidemark | PUBLIC  | tidemark   | database    | USAGE
(5 rows)
