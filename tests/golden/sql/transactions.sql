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

-- Read, then write: nothing has changed in between.
BEGIN;
SELECT count(*) FROM tx_a;
INSERT INTO tx_a SELECT 4, v + 1 FROM tx_a WHERE k = 3;
SELECT v FROM tx_a WHERE k = 4;
COMMIT;
SELECT * FROM tx_a WHERE k = 4;
DELETE FROM tx_a WHERE k = 4;
----
BEGIN
 count
-------
     3
(1 row)
INSERT 0 1
 v
---
 4
(1 row)
COMMIT
 k | v
---+---
 4 | 4
(1 row)
DELETE 1

-- A transaction sees its own writes, in tables and through views of them.
CREATE VIEW tx_view AS SELECT sum(v) AS total, count(*) AS n FROM tx_a;
CREATE INDEX tx_a_k ON tx_a (k);
BEGIN;
INSERT INTO tx_a VALUES (9, 9), (9, 9);
SELECT * FROM tx_view;
SELECT * FROM tx_a WHERE k = 9;
UPDATE tx_a SET v = v + 1 WHERE k = 9;
DELETE FROM tx_a WHERE k = 1;
SELECT * FROM tx_a ORDER BY k;
SELECT count(*) FROM tx_a WHERE k = 1;
SELECT a.k, b.v FROM tx_a a JOIN tx_b b ON a.k = b.k ORDER BY a.k;
ROLLBACK;
SELECT * FROM tx_view;
DROP VIEW tx_view;
DROP INDEX tx_a_k;
----
CREATE VIEW
CREATE INDEX
BEGIN
INSERT 0 2
 total | n
-------+---
    24 | 5
(1 row)
 k | v
---+---
 9 | 9
 9 | 9
(2 rows)
UPDATE 2
DELETE 1
 k | v
---+----
 2 |  2
 3 |  3
 9 | 10
 9 | 10
(4 rows)
 count
-------
     0
(1 row)
 k | v
---+---
 2 | 2
 3 | 3
(2 rows)
ROLLBACK
 total | n
-------+---
     6 | 3
(1 row)
DROP VIEW
DROP INDEX

-- A materialized view has what was committed.
BEGIN;
INSERT INTO tx_a VALUES (9, 9);
SELECT count(*) FROM tx_same;
ROLLBACK;
BEGIN;
SELECT count(*) FROM tx_same;
INSERT INTO tx_a VALUES (9, 9);
ROLLBACK;
----
BEGIN
INSERT 0 1
ERROR:  materialized view "tx_same" does not have yet what this transaction has written to table "tx_a"
HINT:  COMMIT first, or read the view before writing
ROLLBACK
BEGIN
 count
-------
     3
(1 row)
INSERT 0 1
ROLLBACK

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
LINE 1: SELECT nonsense;
               ^
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
UPDATE 1
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
HINT:  COMMIT or ROLLBACK first; if it is your driver that begins transactions, set it to autocommit
ROLLBACK
BEGIN
ERROR:  a transaction block cannot contain CREATE or DROP
HINT:  COMMIT or ROLLBACK first; if it is your driver that begins transactions, set it to autocommit
ROLLBACK

BEGIN;
BEGIN;
COMMIT;
COMMIT;
ROLLBACK;
----
BEGIN
WARNING:  there is already a transaction in progress
BEGIN
COMMIT
WARNING:  there is no transaction in progress
COMMIT
WARNING:  there is no transaction in progress
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
ERROR:  savepoints are for transaction blocks: BEGIN first
BEGIN
SAVEPOINT
ROLLBACK
ROLLBACK

-- Savepoints: what was written or set since is forgotten.
CREATE TABLE tx_s (a int);
SET application_name = 'before';
BEGIN;
INSERT INTO tx_s VALUES (1);
SAVEPOINT one;
INSERT INTO tx_s VALUES (2);
SET application_name = 'within';
SAVEPOINT two;
INSERT INTO tx_s VALUES ('x');
SAVEPOINT three;
ROLLBACK TO SAVEPOINT one;
SHOW application_name;
INSERT INTO tx_s VALUES (3);
RELEASE one;
COMMIT;
SELECT a FROM tx_s ORDER BY a;
BEGIN;
SAVEPOINT "One";
RELEASE SAVEPOINT one;
ROLLBACK TO one;
COMMIT;
RELEASE one;
DROP TABLE tx_s;
----
CREATE TABLE
SET
BEGIN
INSERT 0 1
SAVEPOINT
INSERT 0 1
SET
SAVEPOINT
ERROR:  invalid input syntax for type integer: "x"
ERROR:  current transaction is aborted, commands ignored until end of transaction block
ROLLBACK
 application_name
------------------
 before
(1 row)
INSERT 0 1
RELEASE
COMMIT
 a
---
 1
 3
(2 rows)
BEGIN
SAVEPOINT
ERROR:  savepoint "one" does not exist
ERROR:  savepoint "one" does not exist
ROLLBACK
ERROR:  savepoints are for transaction blocks: BEGIN first
DROP TABLE

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

-- Several statements that are sent at once are one transaction.
CREATE TABLE tx_i (a int);
INSERT INTO tx_i VALUES (1)\; INSERT INTO tx_i VALUES ('x');
SELECT count(*) FROM tx_i;
INSERT INTO tx_i VALUES (1)\; SELECT count(*) FROM tx_i\; UPDATE tx_i SET a = 2\; SELECT a FROM tx_i;
SELECT a FROM tx_i;
----
CREATE TABLE
INSERT 0 1
ERROR:  invalid input syntax for type integer: "x"
 count
-------
     0
(1 row)
INSERT 0 1
 count
-------
     1
(1 row)
UPDATE 1
 a
---
 2
(1 row)
 a
---
 2
(1 row)

-- A BEGIN among them makes what came before part of its transaction, COMMIT and ROLLBACK end it.
INSERT INTO tx_i VALUES (3)\; BEGIN\; INSERT INTO tx_i VALUES (4);
ROLLBACK;
SELECT count(*) FROM tx_i;
INSERT INTO tx_i VALUES (3)\; COMMIT\; INSERT INTO tx_i VALUES (4)\; SELECT 1 / 0;
SELECT a FROM tx_i ORDER BY a;
INSERT INTO tx_i VALUES (5)\; ROLLBACK\; INSERT INTO tx_i VALUES (6);
SELECT a FROM tx_i ORDER BY a;
BEGIN\; INSERT INTO tx_i VALUES (7)\; COMMIT\; SELECT count(*) FROM tx_i;
INSERT INTO tx_i VALUES (8)\; SAVEPOINT x;
SET application_name = 'undone'\; SELECT nonsense;
SHOW application_name;
SELECT count(*) FROM tx_i;
----
INSERT 0 1
BEGIN
INSERT 0 1
ROLLBACK
 count
-------
     1
(1 row)
WARNING:  there is no transaction in progress
INSERT 0 1
COMMIT
INSERT 0 1
ERROR:  division by zero
 a
---
 2
 3
(2 rows)
WARNING:  there is no transaction in progress
INSERT 0 1
ROLLBACK
INSERT 0 1
 a
---
 2
 3
 6
(3 rows)
BEGIN
INSERT 0 1
COMMIT
 count
-------
     4
(1 row)
INSERT 0 1
ERROR:  savepoints are for transaction blocks: BEGIN first
SET
ERROR:  column "nonsense" does not exist
LINE 1: SET application_name = 'undone'; SELECT nonsense;
                                                ^
 application_name
------------------
 before
(1 row)
 count
-------
     4
(1 row)

-- What is created among them ends the transaction before it.
INSERT INTO tx_i VALUES (9)\; CREATE TABLE tx_j (a int)\; INSERT INTO tx_j VALUES (1)\; SELECT nonsense;
SELECT count(*) FROM tx_i WHERE a = 9;
SELECT count(*) FROM tx_j;
DROP TABLE tx_i;
DROP TABLE tx_j;
----
INSERT 0 1
CREATE TABLE
INSERT 0 1
ERROR:  column "nonsense" does not exist
LINE 1: ... tx_j (a int); INSERT INTO tx_j VALUES (1); SELECT nonsense;
                                                              ^
 count
-------
     1
(1 row)
 count
-------
     0
(1 row)
DROP TABLE
DROP TABLE

-- What changes by itself is not read by who writes.
CREATE SOURCE tx_counter FROM LOAD GENERATOR COUNTER;
CREATE TABLE tx_c (a bigint);
BEGIN;
SELECT count(*) >= 0 AS counted FROM tx_counter;
INSERT INTO tx_c VALUES (1);
ROLLBACK;
BEGIN;
INSERT INTO tx_c SELECT count(*) FROM tx_counter;
ROLLBACK;
BEGIN;
INSERT INTO tx_c VALUES (1);
SELECT count(*) >= 0 AS counted FROM tx_counter;
ROLLBACK;
INSERT INTO tx_c SELECT 1 FROM tx_counter WHERE counter < 0;
DROP SOURCE tx_counter;
DROP TABLE tx_c;
----
CREATE SOURCE
CREATE TABLE
BEGIN
 counted
---------
 t
(1 row)
ERROR:  a transaction that reads source "tx_counter" cannot write: nobody could tell whether it has changed meanwhile
HINT:  read it in a transaction of its own; a single INSERT ... SELECT outside of a transaction may read it, too
ROLLBACK
BEGIN
ERROR:  a transaction that reads source "tx_counter" cannot write: nobody could tell whether it has changed meanwhile
HINT:  read it in a transaction of its own; a single INSERT ... SELECT outside of a transaction may read it, too
ROLLBACK
BEGIN
INSERT 0 1
ERROR:  a transaction that reads source "tx_counter" cannot write: nobody could tell whether it has changed meanwhile
HINT:  read it in a transaction of its own; a single INSERT ... SELECT outside of a transaction may read it, too
ROLLBACK
INSERT 0 0
DROP SOURCE
DROP TABLE
