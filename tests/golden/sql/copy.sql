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
COPY cp_t TO STDOUT WITH (FORMAT csv);
COPY cp_t FROM STDIN;
\copy (select k from cp_t) to stdout
----
ERROR:  relation "nowhere" does not exist
ERROR:  division by zero
ERROR:  COPY to a file or program is not supported
HINT:  use TO STDOUT
ERROR:  options of COPY are not supported
HINT:  leave WITH (...) out
ERROR:  COPY ... FROM is not supported
HINT:  use INSERT
1

SELECT 'alive' AS session;
DROP TABLE cp_t;
----
 session
---------
 alive
(1 row)
DROP TABLE
