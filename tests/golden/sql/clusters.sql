SHOW CLUSTERS;
SHOW CLUSTER REPLICAS;
SHOW cluster;
SELECT r.id, r.name, c.name AS cluster, r.read_only, s.status, s.pid > 0 AS has_pid, s.error
FROM mz_cluster_replicas r JOIN mz_clusters c ON r.cluster_id = c.id
JOIN mz_internal.mz_cluster_replica_statuses s ON s.replica_id = r.id;
----
    name    | replicas | status
------------+----------+---------
 quickstart | r1       | running
(1 row)
  cluster   | replica | status | read_only
------------+---------+--------+-----------
 quickstart | r1      | online | f
(1 row)
  cluster
------------
 quickstart
(1 row)
  id   | name |  cluster   | read_only | status | has_pid | error
-------+------+------------+-----------+--------+---------+-------
 s1-r1 | r1   | quickstart | f         | online | t       |
(1 row)

-- Without replicas: what there is to say costs no processes.
CREATE CLUSTER cl_a (REPLICATION FACTOR = 0, MEMORY = '1g');
CREATE CLUSTER cl_a;
CREATE CLUSTER IF NOT EXISTS cl_a;
SHOW CLUSTERS;
SELECT name, replication_factor FROM mz_clusters ORDER BY name;
----
CREATE CLUSTER
ERROR:  cluster "cl_a" already exists
NOTICE:  cluster "cl_a" already exists, skipping
CREATE CLUSTER
    name    | replicas |   status
------------+----------+-------------
 quickstart | r1       | running
 cl_a       |          | no replicas
(2 rows)
    name    | replication_factor
------------+--------------------
 cl_a       |                  0
 quickstart |                  1
(2 rows)

CREATE CLUSTER cl_b (SIZE = '100cc');
CREATE CLUSTER cl_b (REPLICATION FACTOR = many);
CREATE CLUSTER cl_b (REPLICATION FACTOR = 1000);
CREATE CLUSTER cl_b (MEMORY = 'lots');
CREATE CLUSTER cl_b (SPARK MASTER = 'yarn');
CREATE CLUSTER cl_b (AVAILABILITY ZONE = 'a');
CREATE CLUSTER cl_b (MEMORY = '1g', MEMORY = '2g');
CREATE CLUSTER "cl-b";
CREATE CLUSTER REPLICA nowhere.r1;
CREATE CLUSTER REPLICA quickstart.r1;
CREATE CLUSTER REPLICA cl_a.r1 WITH (READ ONLY = perhaps);
----
ERROR:  replicas have no SIZE here
HINT:  MEMORY = '4g' is the heap of each one's JVM, SPARK MASTER where its jobs run
ERROR:  REPLICATION FACTOR takes a number of replicas, not 'many'
ERROR:  a cluster has at most 16 replicas, not 1000
HINT:  each is a process with a JVM of its own
ERROR:  MEMORY takes a size such as '512m' or '4g', not 'lots'
ERROR:  SPARK MASTER takes 'local[*]' or 'spark://host:port', not 'yarn'
ERROR:  option AVAILABILITY ZONE is not supported here
HINT:  known: REPLICATION FACTOR, MEMORY, SPARK MASTER
ERROR:  MEMORY is given more than once
ERROR:  "cl-b" cannot be the name of a cluster or replica
HINT:  use letters, digits and underscores, at most 63
ERROR:  unknown cluster "nowhere"
LINE 1: CREATE CLUSTER REPLICA nowhere.r1;
                               ^
HINT:  SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one
ERROR:  replica "quickstart.r1" already exists
ERROR:  READ ONLY takes true or false, not 'perhaps'

-- Where things go.
CREATE TABLE cl_t (a int, b int);
INSERT INTO cl_t VALUES (1, 10), (1, 20), (2, 30);
CREATE MATERIALIZED VIEW cl_v AS SELECT a, sum(b) AS s FROM cl_t GROUP BY a;
SET cluster = cl_a;
SHOW cluster;
CREATE MATERIALIZED VIEW cl_w AS SELECT count(*) AS n FROM cl_v;
CREATE SOURCE cl_s FROM LOAD GENERATOR COUNTER;
CREATE MATERIALIZED VIEW cl_x IN CLUSTER quickstart AS SELECT max(s) AS m FROM cl_v;
SELECT 1 AS constants_need_no_cluster;
SELECT * FROM cl_v;
DELETE FROM cl_t WHERE a = 3;
----
CREATE TABLE
INSERT 0 3
CREATE MATERIALIZED VIEW
SET
 cluster
---------
 cl_a
(1 row)
CREATE MATERIALIZED VIEW
CREATE SOURCE
CREATE MATERIALIZED VIEW
 constants_need_no_cluster
---------------------------
                         1
(1 row)
ERROR:  cluster "cl_a" has no replicas: nothing can run there
HINT:  ALTER CLUSTER cl_a SET (REPLICATION FACTOR = 1)
ERROR:  cluster "cl_a" has no replicas: nothing can run there
HINT:  ALTER CLUSTER cl_a SET (REPLICATION FACTOR = 1)

SET cluster = QuickStart;
SHOW cluster;
SELECT o.name, c.name AS cluster FROM mz_objects o JOIN mz_clusters c ON o.cluster_id = c.id WHERE o.name LIKE 'cl_%' ORDER BY o.name;
SELECT * FROM cl_v ORDER BY a;
SELECT * FROM cl_x;
-- Nobody keeps it.
SELECT * FROM cl_w;
----
SET
  cluster
------------
 quickstart
(1 row)
 name |  cluster
------+------------
 cl_s | cl_a
 cl_v | quickstart
 cl_w | cl_a
 cl_x | quickstart
(4 rows)
 a | s
---+----
 1 | 30
 2 | 30
(2 rows)
 m
----
 30
(1 row)
ERROR:  cluster "cl_a" has no replicas: "cl_w" is not being kept up to date
HINT:  ALTER CLUSTER cl_a SET (REPLICATION FACTOR = 1)

-- Nor does a replica that only reads; nor do sources go on.
CREATE SOURCE cl_auction IN CLUSTER cl_a FROM LOAD GENERATOR AUCTION FOR ALL TABLES;
CREATE CLUSTER REPLICA cl_a.ro (READ ONLY);
SELECT * FROM cl_w;
SELECT count(*) FROM bids;
DROP CLUSTER REPLICA cl_a.ro;
SELECT count(*) FROM bids;
DROP SOURCE cl_auction;
----
CREATE SOURCE
CREATE CLUSTER REPLICA
ERROR:  all replicas of cluster "cl_a" are read-only: "cl_w" is not being kept up to date
HINT:  ALTER CLUSTER REPLICA cl_a.ro SET (READ ONLY = false)
ERROR:  all replicas of cluster "cl_a" are read-only: "bids" is not being kept up to date
HINT:  ALTER CLUSTER REPLICA cl_a.ro SET (READ ONLY = false)
DROP CLUSTER REPLICA
ERROR:  cluster "cl_a" has no replicas: "bids" is not being kept up to date
HINT:  ALTER CLUSTER cl_a SET (REPLICATION FACTOR = 1)
DROP SOURCE

SET cluster = elsewhere;
CREATE MATERIALIZED VIEW cl_y IN CLUSTER elsewhere AS SELECT a FROM cl_t;
CREATE SOURCE cl_y IN CLUSTER elsewhere FROM LOAD GENERATOR COUNTER;
----
ERROR:  unknown cluster "elsewhere"
LINE 1: SET cluster = elsewhere;
                      ^
HINT:  SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one
ERROR:  unknown cluster "elsewhere"
LINE 1: CREATE MATERIALIZED VIEW cl_y IN CLUSTER elsewhere AS SELECT...
                                                 ^
HINT:  SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one
ERROR:  unknown cluster "elsewhere"
LINE 1: CREATE SOURCE cl_y IN CLUSTER elsewhere FROM LOAD GENERATOR ...
                                      ^
HINT:  SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one

ALTER CLUSTER elsewhere SET (REPLICATION FACTOR = 1);
ALTER CLUSTER cl_a SET (MEMORY = '4g');
ALTER CLUSTER cl_a SET (SIZE = 'small');
ALTER CLUSTER cl_a SET ();
ALTER CLUSTER cl_a SET (REPLICATION FACTOR = -1);
ALTER CLUSTER REPLICA cl_a.r1 SET (READ ONLY = false);
ALTER CLUSTER REPLICA quickstart.r1 SET (READ ONLY);
DROP CLUSTER REPLICA cl_a.r1;
DROP CLUSTER REPLICA IF EXISTS cl_a.r1;
DROP CLUSTER elsewhere;
DROP CLUSTER IF EXISTS elsewhere;
DROP CLUSTER quickstart;
DROP CLUSTER cl_a;
----
ERROR:  unknown cluster "elsewhere"
LINE 1: ALTER CLUSTER elsewhere SET (REPLICATION FACTOR = 1);
                      ^
HINT:  SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one
ERROR:  only the REPLICATION FACTOR of a cluster can be changed
HINT:  CREATE CLUSTER REPLICA cl_a.other (MEMORY = '4g'), then DROP CLUSTER REPLICA the one before
ERROR:  replicas have no SIZE here
HINT:  MEMORY = '4g' is the heap of each one's JVM, SPARK MASTER where its jobs run
ERROR:  only the REPLICATION FACTOR of a cluster can be changed
HINT:  CREATE CLUSTER REPLICA cl_a.other (MEMORY = '4g'), then DROP CLUSTER REPLICA the one before
ERROR:  syntax error at or near "1"
LINE 1: ALTER CLUSTER cl_a SET (REPLICATION FACTOR = -1);
                                                      ^
ERROR:  unknown replica "cl_a.r1"
LINE 1: ALTER CLUSTER REPLICA cl_a.r1 SET (READ ONLY = false);
                              ^
HINT:  SHOW CLUSTER REPLICAS lists those there are
ERROR:  a replica can be made to write, not to follow only
HINT:  SET (READ ONLY = false); for the other way, DROP and CREATE it
ERROR:  unknown replica "cl_a.r1"
LINE 1: DROP CLUSTER REPLICA cl_a.r1;
                             ^
HINT:  SHOW CLUSTER REPLICAS lists those there are
NOTICE:  replica "cl_a.r1" does not exist, skipping
DROP CLUSTER REPLICA
ERROR:  unknown cluster "elsewhere"
LINE 1: DROP CLUSTER elsewhere;
                     ^
HINT:  SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one
NOTICE:  cluster "elsewhere" does not exist, skipping
DROP CLUSTER
ERROR:  cluster "quickstart" is the default one and cannot be dropped
HINT:  ALTER CLUSTER quickstart SET (REPLICATION FACTOR = 0) stops its processes
ERROR:  cannot drop cluster "cl_a" because objects run in it: cl_s, cl_w
HINT:  use DROP CLUSTER ... CASCADE to drop them, and all that reads them, too

BEGIN;
SET LOCAL cluster = cl_a;
SHOW cluster;
COMMIT;
SHOW cluster;
BEGIN;
CREATE CLUSTER cl_b;
ROLLBACK;
----
BEGIN
SET
 cluster
---------
 cl_a
(1 row)
COMMIT
  cluster
------------
 quickstart
(1 row)
BEGIN
ERROR:  a transaction block cannot contain CREATE or DROP
HINT:  COMMIT or ROLLBACK first; if it is your driver that begins transactions, set it to autocommit
ROLLBACK

-- Names of clusters are no names of relations.
CREATE TABLE cl_a (x int);
SELECT count(*) FROM cl_a;
DROP CLUSTER cl_a CASCADE;
SELECT name FROM mz_objects WHERE name LIKE 'cl_%' ORDER BY name;
SHOW CLUSTERS;
DROP TABLE cl_a;
DROP TABLE cl_t CASCADE;
----
CREATE TABLE
 count
-------
     0
(1 row)
DROP CLUSTER
 name
------
 cl_a
 cl_t
 cl_v
 cl_x
(4 rows)
    name    | replicas | status
------------+----------+---------
 quickstart | r1       | running
(1 row)
DROP TABLE
DROP TABLE
