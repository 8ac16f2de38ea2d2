CREATE TABLE tx_a (k int NOT NULL, v int);
CREATE TABLE tx_b (k int NOT NULL, v int);
CREATE MATERIALIZED VIEW tx_same AS SELECT a.v AS left_v, b.v AS right_v FROM tx_a a JOIN tx_b b ON a.k = b.k;
----
CREATE TABLE
CREATE TABLE
CREATE MATERIALIZED VIEW

-- Two tables at one timestamp: the view never holds one without the other.
BEGIN;
INSERT INTO tx_a VALUES (1, 1);
INSERT INTO tx_b VALUES (1, 1);
COMMIT;
SELECT * FROM tx_same;
----
BEGIN
INSERT 0 1
INSERT 0 1
COMMIT
 left_v | right_v
--------+---------
      1 |       1
(1 row)

BEGIN;
INSERT INTO tx_a VALUES (2, 2), (3, 3);
INSERT INTO tx_b VALUES (2, 2);
INSERT INTO tx_b VALUES (3, 3);
COMMIT;
SELECT count(*) FROM tx_same;
----
BEGIN
INSERT 0 2
INSERT 0 1
INSERT 0 1
COMMIT
 count
-------
     3
(1 row)

BEGIN;
INSERT INTO tx_a VALUES (9, 9);
ROLLBACK;
SELECT count(*) FROM tx_a WHERE k = 9;
----
BEGIN
INSERT 0 1
ROLLBACK
 count
-------
     0
(1 row)

-- A transaction reads, or it writes.
BEGIN;
SELECT count(*) FROM tx_a;
INSERT INTO tx_a VALUES (9, 9);
SELECT 1;
COMMIT;
SELECT count(*) FROM tx_a WHERE k = 9;
----
BEGIN
 count
-------
     3
(1 row)
ERROR:  transaction in read-only mode
HINT:  a transaction reads or writes, not both: COMMIT first, or use autocommit
ERROR:  current transaction is aborted, commands ignored until end of transaction block
ROLLBACK
 count
-------
     0
(1 row)

BEGIN;
INSERT INTO tx_a VALUES (9, 9);
SELECT count(*) FROM tx_a;
ROLLBACK;
SELECT count(*) FROM tx_a WHERE k = 9;
----
BEGIN
INSERT 0 1
ERROR:  transaction in write-only mode
HINT:  a transaction reads or writes, not both: COMMIT first, or use autocommit
ROLLBACK
 count
-------
     0
(1 row)

-- Reads of one transaction see one time.
BEGIN;
SELECT count(*) FROM tx_a;
SELECT count(*) FROM tx_same;
COMMIT;
----
BEGIN
 count
-------
     3
(1 row)
 count
-------
     3
(1 row)
COMMIT

-- A failed block takes nothing but its end, and its writes are gone.
BEGIN;
INSERT INTO tx_a VALUES (8, 8);
SELECT nonsense;
INSERT INTO tx_a VALUES (8, 8);
SHOW TABLES;
COMMIT;
SELECT count(*) FROM tx_a WHERE k = 8;
----
BEGIN
INSERT 0 1
ERROR:  column "nonsense" does not exist
ERROR:  current transaction is aborted, commands ignored until end of transaction block
ERROR:  current transaction is aborted, commands ignored until end of transaction block
ROLLBACK
 count
-------
     0
(1 row)

BEGIN;
INSERT INTO tx_a VALUES (NULL, 1);
ROLLBACK;
----
BEGIN
ERROR:  null value in column "k" of relation "tx_a" violates not-null constraint
ROLLBACK

-- Read-then-write statements.
BEGIN;
UPDATE tx_a SET v = v + 10 WHERE k = 1;
COMMIT;
SELECT v FROM tx_a WHERE k = 1;
----
BEGIN
UPDATE 1
COMMIT
 v
----
 11
(1 row)

BEGIN;
DELETE FROM tx_a WHERE k = 1;
INSERT INTO tx_a VALUES (1, 100);
COMMIT;
SELECT v FROM tx_a WHERE k = 1;
----
BEGIN
DELETE 1
INSERT 0 1
COMMIT
  v
-----
 100
(1 row)

BEGIN;
INSERT INTO tx_a VALUES (7, 7);
UPDATE tx_a SET v = 0 WHERE k = 7;
ROLLBACK;
----
BEGIN
INSERT 0 1
ERROR:  this statement would have to read what the transaction has not committed yet
HINT:  COMMIT first, or run it in a transaction of its own
ROLLBACK

BEGIN;
DELETE FROM tx_a;
ROLLBACK;
SELECT count(*) FROM tx_a;
----
BEGIN
DELETE 3
ROLLBACK
 count
-------
     3
(1 row)

-- DDL does not go into a transaction block.
BEGIN;
CREATE TABLE tx_c (a int);
ROLLBACK;
BEGIN;
DROP TABLE tx_a;
ROLLBACK;
----
BEGIN
ERROR:  a transaction block cannot contain CREATE or DROP
HINT:  COMMIT or ROLLBACK first
ROLLBACK
BEGIN
ERROR:  a transaction block cannot contain CREATE or DROP
HINT:  COMMIT or ROLLBACK first
ROLLBACK

BEGIN;
BEGIN;
COMMIT;
COMMIT;
ROLLBACK;
----
BEGIN
NOTICE:  there is already a transaction in progress
BEGIN
COMMIT
NOTICE:  there is no transaction in progress
COMMIT
NOTICE:  there is no transaction in progress
ROLLBACK

BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
INSERT INTO tx_a VALUES (6, 6);
ROLLBACK;
START TRANSACTION;
SHOW transaction_isolation;
END;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SHOW transaction_isolation;
COMMIT;
BEGIN READ ONLY;
SELECT count(*) FROM tx_a;
SET TRANSACTION READ WRITE;
COMMIT;
BEGIN nonsense;
SAVEPOINT x;
BEGIN;
SAVEPOINT x;
ROLLBACK TO x;
ROLLBACK;
----
BEGIN
ERROR:  cannot write in a read-only transaction
ROLLBACK
BEGIN
 transaction_isolation
-----------------------
 strict serializable
(1 row)
COMMIT
BEGIN
 transaction_isolation
-----------------------
 serializable
(1 row)
COMMIT
BEGIN
 count
-------
     3
(1 row)
ERROR:  SET TRANSACTION must come before any query
ROLLBACK
ERROR:  syntax error at or near "nonsense"
ERROR:  SAVEPOINT is not supported
BEGIN
ERROR:  SAVEPOINT is not supported
ERROR:  savepoints are not supported
HINT:  ROLLBACK the whole transaction
ROLLBACK

-- Several statements in one message.
SELECT 1 AS a\; SELECT 2 AS b;
INSERT INTO tx_a VALUES (50, 1)\; INSERT INTO tx_b VALUES (50, 1);
SELECT * FROM tx_same WHERE left_v = 1;
----
 a
---
 1
(1 row)
 b
---
 2
(1 row)
INSERT 0 1
INSERT 0 1
 left_v | right_v
--------+---------
      1 |       1
(1 row)

DROP TABLE tx_a, tx_b CASCADE;
----
DROP TABLE
