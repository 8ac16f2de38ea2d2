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
COPY (SUBSCRIBE sb_t ENVELOPE UPSERT (KEY (k))) TO STDOUT;
COPY (SUBSCRIBE (SELECT k FROM sb_t)) TO STDOUT;
----
ERROR:  the relation can be read from time <time> on, not at 1
HINT:  read at a later time
ERROR:  relation "nowhere" does not exist
ERROR:  "sb_now" is not stored, so it cannot be subscribed to
HINT:  create a materialized view and SUBSCRIBE to that
ERROR:  SUBSCRIBE option ENVELOPE = upsert is not supported
HINT:  supported: SNAPSHOT and PROGRESS, each true or false
ERROR:  SUBSCRIBE option SNAPSHOT = maybe is not supported
HINT:  supported: SNAPSHOT and PROGRESS, each true or false
ERROR:  SUBSCRIBE ... ENVELOPE is not supported
HINT:  leave it out
ERROR:  SUBSCRIBE to a query is not supported yet
HINT:  create a materialized view of the query and SUBSCRIBE to that

DROP TABLE sb_t CASCADE;
DROP VIEW sb_now;
----
DROP TABLE
DROP VIEW
