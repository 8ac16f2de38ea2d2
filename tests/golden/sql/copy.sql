CREATE TABLE cp_t (k int, t text, n numeric(6, 2), day date);
INSERT INTO cp_t VALUES (1, 'tab	and \ and
newline', 1.50, '2024-01-01'), (2, NULL, NULL, NULL), (3, '', 0, NULL), (4, '\N', -1, NULL), (5, 'ü😀', 7, NULL);
----
CREATE TABLE
INSERT 0 5

COPY (SELECT * FROM cp_t ORDER BY k) TO STDOUT;
----
1	tab\tand \\ and\nnewline	1.50	2024-01-01
2	\N	\N	\N
3		0.00	\N
4	\\N	-1.00	\N
5	ü😀	7.00	\N

COPY (SELECT count(*), sum(n) FROM cp_t) TO STDOUT;
----
5	7.50

DELETE FROM cp_t WHERE k > 1;
COPY cp_t TO STDOUT;
COPY cp_t (n, k) TO STDOUT;
COPY (VALUES (1, 'a'), (2, 'b')) TO STDOUT;
COPY (SELECT k FROM cp_t WHERE k > 100) TO STDOUT;
----
DELETE 4
1	tab\tand \\ and\nnewline	1.50	2024-01-01
1.50	1
1	a
2	b

COPY nowhere TO STDOUT;
COPY (SELECT 1 / 0) TO STDOUT;
COPY cp_t TO '/tmp/file';
COPY cp_t FROM '/tmp/file';
COPY cp_t TO STDOUT WITH (FORMAT csv, FORCE_QUOTE *);
\copy (select k from cp_t) to stdout
----
ERROR:  relation "nowhere" does not exist
LINE 1: COPY nowhere TO STDOUT;
             ^
ERROR:  division by zero
ERROR:  COPY to a file or program of the server is not supported
HINT:  use TO STDOUT, or psql's \copy
ERROR:  COPY from a file or program of the server is not supported
HINT:  use FROM STDIN, or psql's \copy
ERROR:  COPY option "force_quote" is not supported
HINT:  supported: FORMAT, DELIMITER, NULL, HEADER, QUOTE, ESCAPE
1

-- CSV, as other programs like it.
COPY (SELECT 1 AS k, 'a,b' AS "T", NULL AS n, '' AS e, 'say "hi"' AS q) TO STDOUT WITH (FORMAT csv, HEADER);
COPY (SELECT 1 AS k, NULL AS n) TO STDOUT DELIMITER '|' NULL '-' CSV HEADER;
COPY (SELECT 1 AS k, 'a|b' AS t, NULL AS n) TO STDOUT (DELIMITER '|', NULL '-');
----
k,T,n,e,q
1,"a,b",,"","say ""hi"""
k|n
1|-
1|a\|b|-

-- In: everything or nothing, and an error says where it is.
CREATE TABLE cp_in (k int NOT NULL, t text, n numeric(6, 2), day date);
COPY cp_in FROM STDIN;
1	tab\tand \\ and\nnewline	1.5	2024-01-01
2	\N	\N	\N
\.
COPY cp_in (t, k) FROM STDIN WITH (FORMAT csv, HEADER);
t,k
"a ""quoted"", b",3
"",4
,5
\.
SELECT k, replace(t, E'\n', '/') AS t, t IS NULL AS none, n, day FROM cp_in ORDER BY k;
----
CREATE TABLE
COPY 2
COPY 3
 k |             t             | none |  n   |    day
---+---------------------------+------+------+------------
 1 | tab     and \ and/newline | f    | 1.50 | 2024-01-01
 2 |                           | t    |      |
 3 | a "quoted", b             | f    |      |
 4 |                           | f    |      |
 5 |                           | t    |      |
(5 rows)

COPY cp_in FROM STDIN;
6	a	1	2024-01-01
seven	b	2	2024-01-01
\.
COPY cp_in FROM STDIN;
6	a	1	2024-02-30
\.
COPY cp_in FROM STDIN CSV;
6,a
\.
COPY cp_in FROM STDIN CSV;
6,a,1,2024-01-01,more
\.
COPY cp_in FROM STDIN CSV;
6,a,12345.678,2024-01-01
\.
COPY cp_in FROM STDIN CSV;
6,a,,
,b,,
\.
COPY cp_in FROM STDIN CSV;
6,"a
\.
COPY cp_in (t) FROM STDIN;
x
\.
COPY cp_in (k, k) FROM STDIN;
COPY cp_in (nothing) FROM STDIN;
COPY nowhere FROM STDIN;
COPY mz_catalog.mz_objects FROM STDIN;
SET max_copy_from_size = '10';
COPY cp_in FROM STDIN CSV;
1000000,a,,
\.
RESET max_copy_from_size;
SELECT count(*) FROM cp_in;
----
ERROR:  invalid input syntax for type integer: "seven"
CONTEXT:  COPY cp_in, line 2, column k: "seven"
ERROR:  date/time field value out of range: "2024-02-30"
CONTEXT:  COPY cp_in, line 1, column day: "2024-02-30"
ERROR:  missing data for column "n"
CONTEXT:  COPY cp_in, line 1: "6,a"
ERROR:  extra data after last expected column
CONTEXT:  COPY cp_in, line 1: "6,a,1,2024-01-01,more"
ERROR:  numeric field overflow
CONTEXT:  COPY cp_in, line 1, column n: "12345.678"
ERROR:  null value in column "k" of relation "cp_in" violates not-null constraint
CONTEXT:  COPY cp_in, line 2: ",b,,"
ERROR:  unterminated CSV quoted field
CONTEXT:  COPY cp_in, line 3
ERROR:  null value in column "k" of relation "cp_in" violates not-null constraint
ERROR:  column "k" specified more than once
ERROR:  column "nothing" of relation "cp_in" does not exist
LINE 1: COPY cp_in (nothing) FROM STDIN;
                    ^
ERROR:  relation "nowhere" does not exist
LINE 1: COPY nowhere FROM STDIN;
             ^
ERROR:  relation "mz_catalog.mz_objects" does not exist
LINE 1: COPY mz_catalog.mz_objects FROM STDIN;
             ^
SET
ERROR:  COPY from stdin has more than 10 bytes
HINT:  copy in several parts, or raise it: SET max_copy_from_size = '4GB'
RESET
 count
-------
     5
(1 row)

-- In a transaction it is one of its writes.
BEGIN;
COPY cp_in (k) FROM STDIN;
10
\.
INSERT INTO cp_in (k) VALUES (11);
ROLLBACK;
BEGIN;
COPY cp_in (k) FROM STDIN;
20
\.
INSERT INTO cp_in (k) VALUES (21);
COMMIT;
BEGIN;
SELECT 1 AS one;
COPY cp_in (k) FROM STDIN;
22
\.
ROLLBACK;
BEGIN READ ONLY;
COPY cp_in (k) FROM STDIN;
ROLLBACK;
SELECT k FROM cp_in WHERE k > 9 ORDER BY k;
DROP TABLE cp_in;
----
BEGIN
COPY 1
INSERT 0 1
ROLLBACK
BEGIN
COPY 1
INSERT 0 1
COMMIT
BEGIN
 one
-----
   1
(1 row)
COPY 1
ROLLBACK
BEGIN
ERROR:  cannot write in a read-only transaction
ROLLBACK
 k
----
 20
 21
(2 rows)
DROP TABLE

SELECT 'alive' AS session;
DROP TABLE cp_t;
----
 session
---------
 alive
(1 row)
DROP TABLE
