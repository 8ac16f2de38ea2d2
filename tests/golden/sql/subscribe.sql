CREATE TABLE sb_t (k int, v text);
CREATE MATERIALIZED VIEW sb_m AS SELECT v, count(*) AS n FROM sb_t GROUP BY v;
CREATE VIEW sb_now AS SELECT write_frontier - 1 AS t FROM mz_internal.mz_frontiers f JOIN mz_objects o ON f.object_id = o.id WHERE o.name = 'sb_t';
----
CREATE TABLE
CREATE MATERIALIZED VIEW
CREATE VIEW

INSERT INTO sb_t VALUES (1, 'a'), (2, 'b');
SELECT t AS t0 FROM sb_now
\gset
INSERT INTO sb_t VALUES (3, 'a');
SELECT t AS t1 FROM sb_now
\gset
UPDATE sb_t SET v = 'c' WHERE k = 1;
DELETE FROM sb_t WHERE k = 2;
SELECT t + 1 AS t2 FROM sb_now
\gset
----
INSERT 0 2
INSERT 0 1
UPDATE 1
DELETE 1

-- All rows at AS OF, then every change before UP TO.
COPY (SUBSCRIBE sb_t AS OF :t0 UP TO :t2) TO STDOUT;
----
<time>	1	1	a
<time>	1	2	b
<time>	1	3	a
<time>	-1	1	a
<time>	1	1	c
<time>	-1	2	b

COPY (SUBSCRIBE TO sb_m AS OF :t0 UP TO :t2) TO STDOUT;
----
<time>	1	a	1
<time>	1	b	1
<time>	-1	a	1
<time>	1	a	2
<time>	-1	a	2
<time>	1	a	1
<time>	1	c	1
<time>	-1	b	1

COPY (SUBSCRIBE sb_t WITH (SNAPSHOT = false) AS OF :t0 UP TO :t2) TO STDOUT;
----
<time>	1	3	a
<time>	-1	1	a
<time>	1	1	c
<time>	-1	2	b

COPY (SUBSCRIBE sb_m WITH (SNAPSHOT false) AS OF :t1 UP TO :t2) TO STDOUT;
----
<time>	-1	a	2
<time>	1	a	1
<time>	1	c	1
<time>	-1	b	1

-- Only the snapshot; and nothing at all.
SELECT :t0 + 1 AS just_after \gset
COPY (SUBSCRIBE sb_t AS OF :t0 UP TO :just_after) TO STDOUT;
COPY (SUBSCRIBE sb_t AS OF :t0 UP TO :t0) TO STDOUT;
COPY (SUBSCRIBE sb_t AS OF :t1 UP TO :t0) TO STDOUT;
----
<time>	1	1	a
<time>	1	2	b
ERROR:  UP TO <time> is before AS OF <time>: nothing could ever be returned

-- With progress the first row says AS OF; how many more come depends on timing, but not here.
COPY (SUBSCRIBE sb_t WITH (PROGRESS) AS OF :t0 UP TO :just_after) TO STDOUT;
COPY (SUBSCRIBE sb_t WITH (PROGRESS = true, SNAPSHOT = false) AS OF :t0 UP TO :t2) TO STDOUT;
----
<time>	t	\N	\N	\N
<time>	f	1	1	a
<time>	f	1	2	b
<time>	t	\N	\N	\N
<time>	f	1	3	a
<time>	f	-1	1	a
<time>	f	1	1	c
<time>	f	-1	2	b
<time>	t	\N	\N	\N

-- Without COPY, as rows.
\a
SUBSCRIBE sb_m AS OF :t0 UP TO :t2;
\a
----
Output format is unaligned.
mz_timestamp|mz_diff|v|n
<time>|1|a|1
<time>|1|b|1
<time>|-1|a|1
<time>|1|a|2
<time>|-1|a|2
<time>|1|a|1
<time>|1|c|1
<time>|-1|b|1
(8 rows)
Output format is aligned.

COPY (SUBSCRIBE sb_t AS OF 1) TO STDOUT;
COPY (SUBSCRIBE nowhere) TO STDOUT;
COPY (SUBSCRIBE sb_now) TO STDOUT;
COPY (SUBSCRIBE sb_t WITH (ENVELOPE = upsert)) TO STDOUT;
COPY (SUBSCRIBE sb_t WITH (SNAPSHOT = maybe)) TO STDOUT;
COPY (SUBSCRIBE sb_t ENVELOPE UPSERT (KEY (x))) TO STDOUT;
COPY (SUBSCRIBE sb_t ENVELOPE UPSERT (KEY ())) TO STDOUT;
COPY (SUBSCRIBE sb_t ENVELOPE DEBEZIUM (KEY (k)) WITHIN TIMESTAMP ORDER BY v) TO STDOUT;
COPY (SUBSCRIBE sb_t WITHIN TIMESTAMP ORDER BY k + 1) TO STDOUT;
----
ERROR:  relation "sb_t" can be read from time <time> on, not at 1
HINT:  read at a later time; RETAIN HISTORY keeps more of it
ERROR:  relation "nowhere" does not exist
LINE 1: COPY (SUBSCRIBE nowhere) TO STDOUT;
                        ^
ERROR:  SUBSCRIBE cannot follow a system relation: it is made up when it is asked for
HINT:  SELECT from it, again and again
ERROR:  SUBSCRIBE option ENVELOPE = upsert is not supported
HINT:  supported: SNAPSHOT and PROGRESS, each true or false
ERROR:  SUBSCRIBE option SNAPSHOT = maybe is not supported
HINT:  supported: SNAPSHOT and PROGRESS, each true or false
ERROR:  column "x" does not exist
LINE 1: COPY (SUBSCRIBE sb_t ENVELOPE UPSERT (KEY (x))) TO STDOUT;
                                                   ^
ERROR:  syntax error at or near ")"
LINE 1: COPY (SUBSCRIBE sb_t ENVELOPE UPSERT (KEY ())) TO STDOUT;
                                                   ^
ERROR:  WITHIN TIMESTAMP ORDER BY cannot be combined with an ENVELOPE
HINT:  of a key there is one row at a time; they come in the order of the key
ERROR:  syntax error at or near "+"
LINE 1: COPY (SUBSCRIBE sb_t WITHIN TIMESTAMP ORDER BY k + 1) TO STD...
                                                         ^

-- A query, from any time that can be read.
COPY (SUBSCRIBE (SELECT v, count(*) AS n FROM sb_t WHERE k > 1 GROUP BY v) AS OF :t0 UP TO :t2) TO STDOUT;
----
<time>	1	b	1
<time>	1	a	1
<time>	-1	b	1

COPY (SUBSCRIBE (SELECT t.v, m.n, t.k FROM sb_t t JOIN sb_m m ON t.v = m.v) WITH (SNAPSHOT = false) AS OF :t1 UP TO :t2) TO STDOUT;
----
<time>	-1	a	2	1
<time>	-1	a	2	3
<time>	1	a	1	3
<time>	1	c	1	1
<time>	-1	b	1	2

COPY (SUBSCRIBE TO (SELECT * FROM sb_t) AS OF :t1 UP TO :t2) TO STDOUT;
COPY (SUBSCRIBE (SELECT v AS k, k AS v FROM sb_t) AS OF :t1 UP TO :t2) TO STDOUT;
COPY (SUBSCRIBE (WITH MUTUALLY RECURSIVE up (k int) AS (SELECT k FROM sb_t UNION SELECT k + 1 FROM up WHERE k < 4) SELECT k FROM up) AS OF :t1 UP TO :t2) TO STDOUT;
COPY (SUBSCRIBE (SELECT 6 / (k - 1) AS q FROM sb_t) AS OF :t1 UP TO :t2) TO STDOUT;
----
<time>	1	1	a
<time>	1	2	b
<time>	1	3	a
<time>	-1	1	a
<time>	1	1	c
<time>	-1	2	b
<time>	1	a	1
<time>	1	a	3
<time>	1	b	2
<time>	-1	a	1
<time>	1	c	1
<time>	-1	b	2
<time>	1	1
<time>	1	2
<time>	1	3
<time>	1	4
ERROR:  division by zero in (6 / (k - 1)) where k = 1

-- A plain view is its query.
CREATE VIEW sb_plain AS SELECT v FROM sb_t WHERE k > 1;
\a
SUBSCRIBE sb_plain AS OF :t0 UP TO :t2;
\a
----
CREATE VIEW
Output format is unaligned.
mz_timestamp|mz_diff|v
<time>|1|b
<time>|1|a
<time>|-1|b
(3 rows)
Output format is aligned.

COPY (SUBSCRIBE (SELECT k FROM sb_t) AS OF 1) TO STDOUT;
COPY (SUBSCRIBE (SELECT k FROM sb_t) AS OF :t1 UP TO :t0) TO STDOUT;
COPY (SUBSCRIBE (SELECT k + 1 AS k FROM sb_t) AS OF :t0 UP TO :t0) TO STDOUT;
COPY (SUBSCRIBE (SELECT 1 AS one)) TO STDOUT;
COPY (SUBSCRIBE (SELECT name FROM mz_objects)) TO STDOUT;
COPY (SUBSCRIBE mz_catalog.mz_objects) TO STDOUT;
COPY (SUBSCRIBE (SELECT now() AS n, k FROM sb_t)) TO STDOUT;
COPY (SUBSCRIBE (SELECT k, k FROM sb_t)) TO STDOUT;
COPY (SUBSCRIBE (SELECT stddev(k::double precision) FROM sb_t)) TO STDOUT;
COPY (SUBSCRIBE (SELECT k FROM nowhere)) TO STDOUT;
----
ERROR:  relation "sb_t" can be read from time <time> on, not at 1
HINT:  read at a later time; RETAIN HISTORY keeps more of it
ERROR:  UP TO <time> is before AS OF <time>: nothing could ever be returned
ERROR:  the query reads nothing, so it never changes
HINT:  SELECT it once
ERROR:  SUBSCRIBE cannot follow a system relation: it is made up when it is asked for
HINT:  SELECT from it, again and again
ERROR:  SUBSCRIBE cannot follow a system relation: it is made up when it is asked for
HINT:  SELECT from it, again and again
ERROR:  now is not supported here: its value changes with time, so a view over it could not be kept
LINE 1: COPY (SUBSCRIBE (SELECT now() AS n, k FROM sb_t)) TO STDOUT;
                                ^
HINT:  for rows that come and go with time, compare mz_now() in WHERE; else write the value as a literal, or keep it in a table
ERROR:  column "k" specified more than once
ERROR:  stddev(double precision) is not supported: it cannot be kept exactly as rows come and go
LINE 1: COPY (SUBSCRIBE (SELECT stddev(k::double precision) FROM sb_...
                                ^
HINT:  cast to numeric, e.g. stddev(x::numeric)
ERROR:  relation "nowhere" does not exist
LINE 1: COPY (SUBSCRIBE (SELECT k FROM nowhere)) TO STDOUT;
                                       ^

-- What happened to keys.
COPY (SUBSCRIBE sb_t ENVELOPE UPSERT (KEY (k)) AS OF :t0 UP TO :t2) TO STDOUT;
COPY (SUBSCRIBE sb_t ENVELOPE UPSERT (KEY (v)) WITH (SNAPSHOT = false) AS OF :t0 UP TO :t2) TO STDOUT;
COPY (SUBSCRIBE sb_m ENVELOPE DEBEZIUM (KEY (v)) AS OF :t0 UP TO :t2) TO STDOUT;
COPY (SUBSCRIBE (SELECT k % 2 AS odd, v FROM sb_t) ENVELOPE DEBEZIUM (KEY (odd)) AS OF :t1 UP TO :t2) TO STDOUT;
COPY (SUBSCRIBE sb_t WITHIN TIMESTAMP ORDER BY v DESC, mz_diff DESC NULLS LAST AS OF :t0 UP TO :t2) TO STDOUT;
----
<time>	upsert	1	a
<time>	upsert	2	b
<time>	upsert	3	a
<time>	upsert	1	c
<time>	delete	2	\N
<time>	upsert	a	3
<time>	delete	a	\N
<time>	upsert	c	1
<time>	delete	b	\N
<time>	insert	a	\N	1
<time>	insert	b	\N	1
<time>	upsert	a	1	2
<time>	upsert	a	2	1
<time>	insert	c	\N	1
<time>	delete	b	1	\N
<time>	insert	0	\N	b
<time>	key_violation	1	\N	\N
<time>	upsert	1	a	c
<time>	delete	0	b	\N
<time>	1	2	b
<time>	1	1	a
<time>	1	3	a
<time>	1	1	c
<time>	-1	1	a
<time>	-1	2	b

\pset format unaligned
SUBSCRIBE sb_m ENVELOPE DEBEZIUM (KEY (v)) AS OF :t0 UP TO :t1;
\pset format aligned
----
Output format is unaligned.
mz_timestamp|mz_state|v|before_n|after_n
<time>|insert|a||1
<time>|insert|b||1
(2 rows)
Output format is aligned.

DROP TABLE sb_t CASCADE;
DROP VIEW sb_now;
----
DROP TABLE
DROP VIEW
