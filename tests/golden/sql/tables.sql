CREATE TABLE tb_types (
  b boolean, s smallint, i int, l bigint, n numeric(10, 2), w numeric(38, 0), d double precision,
  day date, ts timestamp, tz timestamptz, t text
);
----
CREATE TABLE

-- Values that fill their types.
INSERT INTO tb_types VALUES
  (true, 32767, 2147483647, 9223372036854775807, 12345678.91, 12345678901234567890123456789012345678,
   0.1, '2024-02-29', '2024-02-29 23:59:59.999999', '2024-02-29 23:59:59.5+02', 'plain'),
  (false, -32768, -2147483648, -9223372036854775808, -0.01, -1, '1e300',
   '1970-01-01', '1970-01-01', '1970-01-01 00:00:00+00', '');
----
INSERT 0 2

INSERT INTO tb_types (b) VALUES (NULL);
----
INSERT 0 1

\x on
SELECT * FROM tb_types ORDER BY i;
\x off
----
Expanded display is on.
-[ RECORD 1 ]-------------------------------
b   | f
s   | -32768
i   | -2147483648
l   | -9223372036854775808
n   | -0.01
w   | -1
d   | 1e+300
day | 1970-01-01
ts  | 1970-01-01 00:00:00
tz  | 1970-01-01 00:00:00+00
t   |
-[ RECORD 2 ]-------------------------------
b   | t
s   | 32767
i   | 2147483647
l   | 9223372036854775807
n   | 12345678.91
w   | 12345678901234567890123456789012345678
d   | 0.1
day | 2024-02-29
ts  | 2024-02-29 23:59:59.999999
tz  | 2024-02-29 21:59:59.5+00
t   | plain
-[ RECORD 3 ]-------------------------------
b   |
s   |
i   |
l   |
n   |
w   |
d   |
day |
ts  |
tz  |
t   |
Expanded display is off.

INSERT INTO tb_types (i, d) VALUES (1, 'NaN'), (2, 'Infinity'), (3, '-Infinity'), (4, 1e-7), (5, -0.0);
SELECT i, d FROM tb_types WHERE i BETWEEN 1 AND 9 ORDER BY i;
----
INSERT 0 5
 i |     d
---+-----------
 1 |       NaN
 2 |  Infinity
 3 | -Infinity
 4 |     1e-07
 5 |         0
(5 rows)

-- Quotes, newlines, backslashes, unicode; E strings and dollar quotes.
CREATE TABLE tb_text (k int NOT NULL, t text);
INSERT INTO tb_text VALUES (1, 'it''s'), (2, '"double"'), (3, 'two
lines'), (4, E'tab\there'), (5, 'back\slash'), (6, $$dollar 'quoted'$$), (7, 'naïve 😀 – 日本'), (8, '; --');
SELECT k, t, length(t) FROM tb_text ORDER BY k;
----
CREATE TABLE
INSERT 0 8
 k |        t        | length
---+-----------------+--------
 1 | it's            |      4
 2 | "double"        |      8
 3 | two            +|      9
   | lines           |
 4 | tab     here    |      8
 5 | back\slash      |     10
 6 | dollar 'quoted' |     15
 7 | naïve 😀 – 日本 |     12
 8 | ; --            |      4
(8 rows)

SELECT k FROM tb_text WHERE t = 'naïve 😀 – 日本' OR t = 'it''s' ORDER BY k;
----
 k
---
 1
 7
(2 rows)

-- What is longer than its type.
INSERT INTO tb_types (s) VALUES (32768);
INSERT INTO tb_types (n) VALUES (123456789.00);
INSERT INTO tb_types (l) VALUES (9223372036854775808);
INSERT INTO tb_types (day) VALUES ('2023-02-29');
INSERT INTO tb_types (ts) VALUES ('soon');
INSERT INTO tb_types (b) VALUES ('maybe');
----
ERROR:  smallint out of range
ERROR:  numeric field overflow
ERROR:  bigint out of range
ERROR:  date/time field value out of range: "2023-02-29"
ERROR:  invalid input syntax for type timestamp: "soon"
ERROR:  invalid input syntax for type boolean: "maybe"

-- A number is rounded to its column's scale, as in PostgreSQL.
INSERT INTO tb_types (i, n) VALUES (10, 1.005), (11, 1.004), (12, '7.999');
SELECT i, n FROM tb_types WHERE i BETWEEN 10 AND 12 ORDER BY i;
----
INSERT 0 3
 i  |  n
----+------
 10 | 1.01
 11 | 1.00
 12 | 8.00
(3 rows)

UPDATE tb_text SET t = t || '!', k = k + 100 WHERE k <= 2;
SELECT k, t FROM tb_text WHERE k > 100 ORDER BY k;
----
UPDATE 2
  k  |     t
-----+-----------
 101 | it's!
 102 | "double"!
(2 rows)

UPDATE tb_text SET t = NULL WHERE k = 3;
SELECT count(*), count(t) FROM tb_text;
----
UPDATE 1
 count | count
-------+-------
     8 |     7
(1 row)

UPDATE tb_text SET k = NULL WHERE k = 3;
----
ERROR:  null value in column "k" of relation "tb_text" violates not-null constraint

DELETE FROM tb_text WHERE t IS NULL OR k > 100;
DELETE FROM tb_text WHERE k = 12345;
SELECT count(*) FROM tb_text;
----
DELETE 3
DELETE 0
 count
-------
     5
(1 row)

-- A table is a bag: the same row twice is two rows, and an UPDATE of both counts two.
CREATE TABLE tb_bag (a int);
INSERT INTO tb_bag VALUES (1), (1), (2);
SELECT a, count(*) FROM tb_bag GROUP BY a ORDER BY a;
UPDATE tb_bag SET a = 2 WHERE a = 1;
SELECT a, count(*) FROM tb_bag GROUP BY a ORDER BY a;
DELETE FROM tb_bag;
SELECT count(*) FROM tb_bag;
----
CREATE TABLE
INSERT 0 3
 a | count
---+-------
 1 |     2
 2 |     1
(2 rows)
UPDATE 2
 a | count
---+-------
 2 |     3
(1 row)
DELETE 3
 count
-------
     0
(1 row)

INSERT INTO tb_bag SELECT k FROM tb_text WHERE k > 4;
SELECT a FROM tb_bag ORDER BY a DESC LIMIT 2;
INSERT INTO tb_bag VALUES (1 + 1), (abs(-7)), (NULL);
\pset null NULL
SELECT a FROM tb_bag ORDER BY a NULLS FIRST;
----
INSERT 0 4
 a
---
 8
 7
(2 rows)
INSERT 0 3
Null display is "NULL".
  a
------
 NULL
    2
    5
    6
    7
    7
    8
(7 rows)

-- Quoted literals and NULLs of a select list are taken for what they are inserted into.
CREATE TABLE tb_taken (k int, v text, d date, n numeric(10, 2), a int[]);
INSERT INTO tb_taken SELECT '1', 'x', '2024-01-01', '1.505', '{1,2}';
INSERT INTO tb_taken (d, k, v) SELECT '2024-02-02', k + 1, NULL FROM tb_taken WHERE k = 1;
INSERT INTO tb_taken (k) SELECT 'x' FROM tb_taken;
INSERT INTO tb_taken (k) SELECT v FROM tb_taken;
SELECT * FROM tb_taken ORDER BY k;
DROP TABLE tb_taken;
----
CREATE TABLE
INSERT 0 1
INSERT 0 1
ERROR:  invalid input syntax for type integer: "x"
ERROR:  column "k" is of type integer but expression is of type text
HINT:  you will need to rewrite or cast the expression
 k |  v   |     d      |  n   |   a
---+------+------------+------+-------
 1 | x    | 2024-01-01 | 1.51 | {1,2}
 2 | NULL | 2024-02-02 | NULL | NULL
(2 rows)
DROP TABLE

-- Names: folded unless quoted, with or without the schema.
CREATE TABLE "tb Mixed" ("Col One" int, "select" text);
INSERT INTO "tb Mixed" VALUES (1, 'x');
SELECT "Col One", "select" FROM tidemark.public."tb Mixed";
SELECT * FROM TB_BAG WHERE A = 7;
----
CREATE TABLE
INSERT 0 1
 Col One | select
---------+--------
       1 | x
(1 row)
 a
---
 7
 7
(2 rows)

DROP TABLE tb_types;
DROP TABLE tb_text, tb_bag, "tb Mixed";
----
DROP TABLE
DROP TABLE
