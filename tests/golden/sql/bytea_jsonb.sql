CREATE TABLE bj (id int, b bytea, j jsonb);
----
CREATE TABLE

INSERT INTO bj VALUES (1, '\xDEad', '{"b": 1.50, "a": [true, null]}'), (2, 'plain', '"text"'), (3, NULL, NULL), (4, '', 'null');
----
INSERT 0 4

SELECT * FROM bj ORDER BY id;
----
 id |      b       |               j
----+--------------+-------------------------------
  1 | \xdead       | {"a": [true, null], "b": 1.5}
  2 | \x706c61696e | "text"
  3 |              |
  4 | \x           | null
(4 rows)

-- Equality is of values, however they are written.
SELECT id FROM bj WHERE b = '\xdead' AND j = '{"a":[true,null],"b":1.5}';
----
 id
----
  1
(1 row)

SELECT l.id, l.b = r.b AS b, l.j = r.j AS j, l.j IS NULL AS n FROM bj l JOIN bj r ON l.id = r.id ORDER BY l.id;
----
 id | b | j | n
----+---+---+---
  1 | t | t | f
  2 | t | t | f
  3 |   |   | t
  4 | t | t | f
(4 rows)

SELECT id, b::text, j::text, b::text::bytea = b AS b, j::text::jsonb = j AS j FROM bj ORDER BY id;
----
 id |      b       |               j               | b | j
----+--------------+-------------------------------+---+---
  1 | \xdead       | {"a": [true, null], "b": 1.5} | t | t
  2 | \x706c61696e | "text"                        | t | t
  3 |              |                               |   |
  4 | \x           | null                          | t | t
(4 rows)

SELECT j, count(*) FROM bj GROUP BY j ORDER BY j::text;
----
               j               | count
-------------------------------+-------
 "text"                        |     1
 null                          |     1
 {"a": [true, null], "b": 1.5} |     1
                               |     1
(4 rows)

CREATE VIEW bj_view AS SELECT b, j FROM bj WHERE id < 3;
CREATE MATERIALIZED VIEW bj_kept AS SELECT b, j, id FROM bj_view JOIN (SELECT b AS c, id FROM bj) x ON b = c;
SELECT * FROM bj_kept ORDER BY id;
----
CREATE VIEW
CREATE MATERIALIZED VIEW
      b       |               j               | id
--------------+-------------------------------+----
 \xdead       | {"a": [true, null], "b": 1.5} |  1
 \x706c61696e | "text"                        |  2
(2 rows)

COPY (SELECT b, j FROM bj ORDER BY id) TO STDOUT;
----
\\xdead	{"a": [true, null], "b": 1.5}
\\x706c61696e	"text"
\N	\N
\\x	null

UPDATE bj SET b = '\x00ff', j = '[1, 2]' WHERE id = 3;
DELETE FROM bj WHERE j = 'null';
SELECT * FROM bj ORDER BY id;
----
UPDATE 1
DELETE 1
 id |      b       |               j
----+--------------+-------------------------------
  1 | \xdead       | {"a": [true, null], "b": 1.5}
  2 | \x706c61696e | "text"
  3 | \x00ff       | [1, 2]
(3 rows)

SELECT '\xbe'::bytea, '{"a": 1}'::jsonb;
----
 bytea |  jsonb
-------+----------
 \xbe  | {"a": 1}
(1 row)

INSERT INTO bj VALUES (5, '\xd', NULL);
INSERT INTO bj VALUES (5, 'a\134', NULL);
INSERT INTO bj VALUES (5, NULL, '{"a": 1');
INSERT INTO bj VALUES (5, NULL, '{"a": 1, "a": 2}');
----
ERROR:  invalid input syntax for type bytea: "\xd"
ERROR:  invalid input syntax for type bytea: "a\134"
ERROR:  invalid input syntax for type jsonb: "{"a": 1"
INSERT 0 1

SELECT b || b FROM bj ORDER BY id;
SELECT j < j FROM bj;
SELECT max(j) FROM bj;
SELECT min(b) FROM bj;
SELECT j -> 'a' FROM bj ORDER BY id;
SELECT j::int FROM bj WHERE id = 1;
SELECT b = j FROM bj;
SELECT id::text::jsonb, ('x' || id::text)::bytea FROM bj ORDER BY bj.id;
SELECT ('{' || id::text)::jsonb FROM bj WHERE id = 1;
----
        ?column?
------------------------
 \xdeaddead
 \x706c61696e706c61696e
 \x00ff00ff
(4 rows)
ERROR:  < of jsonb is not supported
LINE 1: SELECT j < j FROM bj;
               ^
HINT:  compare parts of it, or its text
ERROR:  function max(jsonb) does not exist
LINE 1: SELECT max(j) FROM bj;
               ^
HINT:  no aggregate takes these types; an explicit cast may help
ERROR:  function min(bytea) does not exist
LINE 1: SELECT min(b) FROM bj;
               ^
HINT:  no aggregate takes these types; an explicit cast may help
   ?column?
--------------
 [true, null]
 2
(4 rows)
ERROR:  cannot cast jsonb object to type integer
ERROR:  operator does not exist: bytea = jsonb
LINE 1: SELECT b = j FROM bj;
               ^
HINT:  no function or operator takes these types; an explicit cast may help
 id | bytea
----+--------
 1  | \x7831
 2  | \x7832
 3  | \x7833
 5  | \x7835
(4 rows)
ERROR:  invalid input syntax for type jsonb: "{1"

DROP TABLE bj CASCADE;
----
DROP TABLE
