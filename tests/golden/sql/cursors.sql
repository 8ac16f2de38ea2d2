-- DECLARE, FETCH, CLOSE; PREPARE, EXECUTE, DEALLOCATE.
CREATE TABLE cur_t (k int, v text);
INSERT INTO cur_t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e');
BEGIN;
DECLARE c CURSOR FOR SELECT k, v FROM cur_t ORDER BY k;
FETCH c;
FETCH FORWARD 2 FROM c;
FETCH ALL c;
FETCH NEXT IN c;
CLOSE c;
FETCH c;
ROLLBACK;
----
CREATE TABLE
INSERT 0 5
BEGIN
DECLARE CURSOR
 k | v
---+---
 1 | a
(1 row)
 k | v
---+---
 2 | b
 3 | c
(2 rows)
 k | v
---+---
 4 | d
 5 | e
(2 rows)
 k | v
---+---
(0 rows)
CLOSE CURSOR
ERROR:  cursor "c" does not exist
ROLLBACK

-- A cursor is of its transaction's time, and ends with it.
BEGIN;
DECLARE c NO SCROLL CURSOR WITHOUT HOLD FOR SELECT count(*) AS n FROM cur_t;
DECLARE d CURSOR FOR SELECT 1 AS one;
DECLARE d CURSOR FOR SELECT 2 AS two;
COMMIT;
FETCH c;
BEGIN;
FETCH c;
ROLLBACK;
DECLARE c CURSOR FOR SELECT 1;
BEGIN;
INSERT INTO cur_t VALUES (6, 'f');
DECLARE c CURSOR FOR SELECT k FROM cur_t;
ROLLBACK;
----
BEGIN
DECLARE CURSOR
DECLARE CURSOR
ERROR:  cursor "d" already exists
ROLLBACK
ERROR:  cursor "c" does not exist
BEGIN
ERROR:  cursor "c" does not exist
ROLLBACK
ERROR:  DECLARE CURSOR can only be used in transaction blocks
HINT:  BEGIN first, or declare it WITH HOLD
BEGIN
INSERT 0 1
DECLARE CURSOR
ROLLBACK

-- WITH HOLD it lives on, if its transaction is committed.
DECLARE h CURSOR WITH HOLD FOR SELECT k FROM cur_t ORDER BY k;
BEGIN;
DECLARE gone CURSOR WITH HOLD FOR SELECT 1;
ROLLBACK;
BEGIN;
DECLARE kept CURSOR WITH HOLD FOR SELECT 7 AS seven;
COMMIT;
INSERT INTO cur_t VALUES (0, 'z');
FETCH 2 FROM h;
BEGIN;
ROLLBACK;
FETCH 1 FROM h;
FETCH kept;
FETCH gone;
CLOSE ALL;
FETCH h;
DELETE FROM cur_t WHERE k = 0;
----
DECLARE CURSOR
BEGIN
DECLARE CURSOR
ROLLBACK
BEGIN
DECLARE CURSOR
COMMIT
INSERT 0 1
 k
---
 1
 2
(2 rows)
BEGIN
ROLLBACK
 k
---
 3
(1 row)
 seven
-------
     7
(1 row)
ERROR:  cursor "gone" does not exist
CLOSE CURSOR ALL
ERROR:  cursor "h" does not exist
DELETE 1

-- Of a SUBSCRIBE: what there is, without waiting for as many.
BEGIN;
DECLARE s CURSOR FOR SUBSCRIBE (SELECT k FROM cur_t WHERE k < 3);
\t
FETCH 1 s;
FETCH ALL s;
FETCH ALL s WITH (timeout = '0s');
FETCH 10 FROM s WITH (TIMEOUT '10ms');
\t
COMMIT;
DECLARE s CURSOR WITH HOLD FOR SUBSCRIBE cur_t;
----
BEGIN
DECLARE CURSOR
Tuples only is on.
 <time> |       1 | 1
 <time> |       1 | 2
Tuples only is off.
COMMIT
ERROR:  a cursor WITH HOLD cannot be of a SUBSCRIBE, which has no end to be kept
HINT:  leave WITH HOLD out, and FETCH within the transaction

BEGIN;
DECLARE b CURSOR FOR SELECT 1;
FETCH PRIOR FROM b;
ROLLBACK;
DECLARE c SCROLL CURSOR FOR SELECT 1;
CLOSE nothing;
DECLARE c CURSOR WITH HOLD FOR SELECT 1 / 0;
----
BEGIN
DECLARE CURSOR
ERROR:  cursor can only scan forward
HINT:  use FETCH [FORWARD] n
ROLLBACK
ERROR:  scrollable cursors are not supported
HINT:  declare it NO SCROLL
ERROR:  cursor "nothing" does not exist
ERROR:  division by zero

PREPARE p (int, text) AS SELECT $1 + 1 AS more, $2 || '!' AS loud;
EXECUTE p (1, 'a');
EXECUTE p ('2', 'b');
EXECUTE p (NULL, 'c');
EXECUTE p (1);
EXECUTE p ('x', 'y');
EXECUTE p (1.5, 'y');
PREPARE p AS SELECT 1;
PREPARE ins AS INSERT INTO cur_t VALUES ($1, $2);
EXECUTE ins (100, 'hundred');
PREPARE look AS SELECT v FROM cur_t WHERE k = $1;
EXECUTE look (100);
DEALLOCATE look;
EXECUTE look (100);
DEALLOCATE look;
DEALLOCATE ALL;
EXECUTE p (1, 'a');
DROP TABLE cur_t;
----
PREPARE
 more | loud
------+------
    2 | a!
(1 row)
 more | loud
------+------
    3 | b!
(1 row)
 more | loud
------+------
      | c!
(1 row)
ERROR:  wrong number of parameters for prepared statement "p": expected 2, got 1
ERROR:  invalid input syntax for type integer: "x"
 more | loud
------+------
    3 | y!
(1 row)
ERROR:  prepared statement "p" already exists
PREPARE
INSERT 0 1
PREPARE
    v
---------
 hundred
(1 row)
DEALLOCATE
ERROR:  prepared statement "look" does not exist
ERROR:  prepared statement "look" does not exist
DEALLOCATE ALL
ERROR:  prepared statement "p" does not exist
DROP TABLE
