-- Queries of every kind are kept right as rows come and go.
CREATE TABLE mt_a (k int, v int, t text);
CREATE TABLE mt_b (k int, w int);
INSERT INTO mt_a VALUES (1, 10, 'x'), (2, 20, 'y'), (2, 30, NULL), (NULL, 40, 'z');
INSERT INTO mt_b VALUES (1, 7), (2, 8), (3, 9);
CREATE MATERIALIZED VIEW mt_left AS SELECT mt_a.k, v, w FROM mt_a LEFT JOIN mt_b ON mt_a.k = mt_b.k AND w > 7;
CREATE MATERIALIZED VIEW mt_full AS SELECT mt_a.v, mt_b.w FROM mt_a FULL JOIN mt_b USING (k);
CREATE MATERIALIZED VIEW mt_in AS SELECT v FROM mt_a WHERE k IN (SELECT k FROM mt_b WHERE w < 8) OR NOT EXISTS (SELECT 1 FROM mt_b WHERE mt_b.k = mt_a.k);
CREATE MATERIALIZED VIEW mt_scalar AS SELECT v, (SELECT max(w) FROM mt_b WHERE mt_b.k >= mt_a.k) AS top FROM mt_a;
CREATE MATERIALIZED VIEW mt_top AS SELECT k, v FROM mt_a ORDER BY v DESC LIMIT 2;
CREATE MATERIALIZED VIEW mt_window AS SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n, sum(v) OVER (PARTITION BY k ORDER BY v) AS so_far FROM mt_a;
CREATE MATERIALIZED VIEW mt_nested AS SELECT n, count(*) AS groups FROM (SELECT k, count(DISTINCT v) AS n FROM mt_a GROUP BY k) s GROUP BY n;
CREATE MATERIALIZED VIEW mt_lists AS SELECT k, string_agg(t, ',' ORDER BY v) AS ts, array_agg(v) AS vs FROM mt_a GROUP BY k;
CREATE MATERIALIZED VIEW mt_sets AS (SELECT k FROM mt_a EXCEPT SELECT k FROM mt_b) UNION ALL (SELECT k FROM mt_b INTERSECT SELECT k FROM mt_a);
CREATE MATERIALIZED VIEW mt_pairs AS SELECT a.v, b.w FROM mt_a a CROSS JOIN mt_b b WHERE a.v > 3 * b.w;
CREATE MATERIALIZED VIEW mt_series AS SELECT v, g FROM mt_a, generate_series(1, mt_a.k) g;
CREATE MATERIALIZED VIEW mt_sets_of AS SELECT k, t, count(*) AS n FROM mt_a GROUP BY ROLLUP (k, t);
CREATE MATERIALIZED VIEW mt_reach AS WITH MUTUALLY RECURSIVE r (a int, b int) AS (SELECT k, w FROM mt_b UNION SELECT r.a, mt_b.w FROM r JOIN mt_b ON r.b = mt_b.k) SELECT a, b FROM r;
----

SELECT * FROM mt_left ORDER BY v, w;
----

SELECT * FROM mt_full ORDER BY v, w;
----

SELECT * FROM mt_in ORDER BY v;
----

SELECT * FROM mt_scalar ORDER BY v;
----

SELECT * FROM mt_top ORDER BY v;
----

SELECT * FROM mt_window ORDER BY k, v;
----

SELECT * FROM mt_nested ORDER BY n;
----

SELECT * FROM mt_lists ORDER BY k;
----

SELECT * FROM mt_sets ORDER BY k;
----

SELECT * FROM mt_pairs ORDER BY v, w;
----

SELECT * FROM mt_series ORDER BY v, g;
----

SELECT * FROM mt_sets_of ORDER BY k, t, n;
----

SELECT * FROM mt_reach ORDER BY a, b;
----

DELETE FROM mt_a WHERE v = 40;
UPDATE mt_b SET w = 1 WHERE k = 3;
INSERT INTO mt_a VALUES (3, 25, 'w'), (1, 10, 'x');
INSERT INTO mt_b VALUES (7, 2);
----

SELECT * FROM mt_left ORDER BY v, w;
----

SELECT * FROM mt_full ORDER BY v, w;
----

SELECT * FROM mt_in ORDER BY v;
----

SELECT * FROM mt_scalar ORDER BY v;
----

SELECT * FROM mt_top ORDER BY v;
----

SELECT * FROM mt_window ORDER BY k, v;
----

SELECT * FROM mt_nested ORDER BY n;
----

SELECT * FROM mt_lists ORDER BY k;
----

SELECT * FROM mt_sets ORDER BY k;
----

SELECT * FROM mt_pairs ORDER BY v, w;
----

SELECT * FROM mt_series ORDER BY v, g;
----

SELECT * FROM mt_sets_of ORDER BY k, t, n;
----

SELECT * FROM mt_reach ORDER BY a, b;
----

DROP TABLE mt_a, mt_b CASCADE;
----
