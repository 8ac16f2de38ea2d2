CREATE TABLE ex_o (id int NOT NULL, customer int, amount numeric(10, 2));
CREATE TABLE ex_c (id int NOT NULL, region text);
CREATE VIEW ex_j AS SELECT region, amount FROM ex_o JOIN ex_c ON ex_o.customer = ex_c.id WHERE amount > 1;
CREATE MATERIALIZED VIEW ex_m AS SELECT region, count(*) AS n, sum(amount) AS total, max(amount) AS top FROM ex_j GROUP BY region;
----
CREATE TABLE
CREATE TABLE
CREATE VIEW
CREATE MATERIALIZED VIEW

EXPLAIN SELECT 1 + 1 AS two;
----
        plan
---------------------
 Project ((1 + 1))
   Constant (1 rows)
(2 rows)

EXPLAIN SELECT id FROM ex_o WHERE customer = 3 ORDER BY amount DESC LIMIT 2;
----
                      plan
------------------------------------------------
 Finish order by (#1 desc) limit 2
   Project (#0, #2)
     Filter (#1 = 3)
       Get ex_o (id, customer, amount)
 Answered without Spark: ex_o read, it is small
(5 rows)

EXPLAIN SELECT id FROM ex_o ORDER BY amount;
----
                      plan
------------------------------------------------
 Finish order by (#1)
   Project (#0, #2)
     Get ex_o (id, customer, amount)
 Answered without Spark: ex_o read, it is small
(4 rows)

EXPLAIN SELECT o.id, region FROM ex_o o LEFT JOIN ex_c c ON o.customer = c.id AND amount > 5 WHERE NOT EXISTS (SELECT 1 FROM ex_c d WHERE d.id = o.id);
EXPLAIN SELECT id, g, sum(amount) OVER (PARTITION BY customer ORDER BY id ROWS 2 PRECEDING) AS s FROM ex_o, generate_series(1, customer) g;
EXPLAIN SELECT id FROM (SELECT id FROM ex_o ORDER BY amount DESC LIMIT 2) x UNION ALL (SELECT DISTINCT ON (region) id FROM ex_c ORDER BY region, id DESC);
----
                            plan
-------------------------------------------------------------
 Project (#0, #4)
   Anti join on (#5 = #0)
     Left join on ((#1 = #3) and (#2::numeric(12,2) > 5.00))
       Get ex_o (id, customer, amount)
       Get ex_c (id, region)
     Get ex_c (id, region)
 Answered by Spark:
   ex_o read, it is small
   ex_c read, it is small
(9 rows)
                                           plan
-------------------------------------------------------------------------------------------
 Project (#0, #3, #4)
   Window partition by (#1) order by (#0) sum(#2) ROWS BETWEEN 2 PRECEDING AND CURRENT ROW
     FlatMap generate_series(1, #1, 1)
       Get ex_o (id, customer, amount)
 Answered by Spark:
   ex_o read, it is small
(6 rows)
                         plan
-------------------------------------------------------
 Union
   Project (#0)
     Project (#0)
       TopK order by (#1 desc) limit 2
         Project (#0, #2)
           Get ex_o (id, customer, amount)
   Project (#0)
     TopK group by (#1) order by (#1, #0 desc) limit 1
       Project (#0, #1)
         Get ex_c (id, region)
 Answered by Spark:
   ex_o read, it is small
   ex_c read, it is small
(13 rows)

EXPLAIN OPTIMIZED PLAN FOR SELECT region, sum(amount) FROM ex_j GROUP BY region HAVING count(*) > 1;
----
                           plan
-----------------------------------------------------------
 Project (#0, #1)
   Project (#0, #1)
     Filter (#2 > 1)
       Reduce group by (#0) aggregates (sum(#1), count(*))
         Project (#1, #0)
           Project (#1, #3)
             Join on (#0 = #2)
               Filter (#1::numeric(12,2) > 1.00)
                 Project (#1, #2)
                   Get ex_o (id, customer, amount)
               Get ex_c (id, region)
(11 rows)

EXPLAIN VIEW ex_j;
----
                 plan
---------------------------------------
 Project (#4, #2)
   Filter (#2::numeric(12,2) > 1.00)
     Join on (#1 = #3)
       Get ex_o (id, customer, amount)
       Get ex_c (id, region)
(5 rows)

EXPLAIN MATERIALIZED VIEW ex_m;
----
                              plan
----------------------------------------------------------------
 Project (#0, #1, #2, #3)
   Reduce group by (#0) aggregates (count(*), sum(#1), max(#1))
     Project (#4, #2)
       Filter (#2::numeric(12,2) > 1.00)
         Join on (#1 = #3)
           Get ex_o (id, customer, amount)
           Get ex_c (id, region)
(7 rows)

-- The Spark SQL that follows is tested where it is made.
\a \t
EXPLAIN DELTA PLAN FOR MATERIALIZED VIEW ex_m
\g | sed '/^-- block/q'
\a \t
----
Output format is unaligned.
Tuples only is on.
Maintained incrementally: yes
Spark jobs per tick: at most 2; none when nothing changed
The view itself:
  A tick looks up, besides what changed:
    for each change of ex_o: the rows it joins in ex_c by (id)
    for each change of ex_c: the rows it joins in ex_o by (customer)
    for each group that changes: its sums, and one value more than it lost
  Arrangements:
    ex_c by (id)
    ex_o by (customer)
  State kept:
    acc (k0, n, n0, s0) by (k0)
    head0 (k0, v) by (k0) ordered by (v)
  -- body
  SELECT l1_c1 AS o0,
         l0_c1 AS o1,
         CAST(NULL AS STRING) AS _err,
         greatest(l0_t, l1_t) AS _t,
         l0_d * l1_d AS _d
  FROM (SELECT /*+ COALESCE(1) */ c0 AS l0_c0, c1 AS l0_c1, _t AS l0_t, _d AS l0_d FROM leaf0) CROSS JOIN (SELECT /*+ COALESCE(1) */ c0 AS l1_c0, c1 AS l1_c1, _t AS l1_t, _d AS l1_d FROM leaf1)
  WHERE ((CAST(l0_c1 AS DECIMAL(12,2)) > CAST('1.00' AS DECIMAL(12,2))))
    AND ((l0_c0 = l1_c0))
    AND greatest(l0_t, l1_t) >= 0
  -- tail
  WITH changes AS (
    SELECT k0, _t, sum(n) AS n, sum(n0) AS n0, sum(s0) AS s0
    FROM (SELECT k0, _t, _d AS n, CASE WHEN a0 IS NOT NULL THEN _d ELSE 0L END AS n0, w0 AS s0 FROM (SELECT /*+ COALESCE(1) */ * FROM delta)
      UNION ALL SELECT k0, -1 AS _t, n, n0, s0 FROM (SELECT /*+ COALESCE(1) */ * FROM acc))
    GROUP BY k0, _t),
  running AS (
    SELECT k0, _t, sum(n) OVER (PARTITION BY k0 ORDER BY _t) AS n, sum(n0) OVER (PARTITION BY k0 ORDER BY _t) AS n0, sum(s0) OVER (PARTITION BY k0 ORDER BY _t) AS s0,
      lead(_t) OVER (PARTITION BY k0 ORDER BY _t) AS _next
    FROM changes),
  lives0 AS (
    SELECT k0, v, _t, sum(_d) OVER (PARTITION BY k0, v ORDER BY _t) AS _live,
      coalesce(lead(_t) OVER (PARTITION BY k0, v ORDER BY _t), 2147483647) AS _until
    FROM (SELECT /*+ COALESCE(1) */ * FROM values0)),
  spans0 AS (
    SELECT k0, _t, _until, max(v) AS hi
    FROM lives0
    WHERE _live > 0 AND _t < _until
    GROUP BY k0, _t, _until),
  extremes0 AS (
    SELECT r.k0, r.n, r.n0, r.s0, r._t, r._next, max(l.hi) AS hi0
    FROM running r LEFT JOIN spans0 l ON r.k0 <=> l.k0 AND r._t >= l._t AND r._t < l._until
    GROUP BY r.k0, r.n, r.n0, r.s0, r._t, r._next)
  SELECT k0,
         n,
         n0,
         s0,
         hi0,
         k0 AS o0,
         n AS o1,
         CASE WHEN (n0 > CAST('0' AS BIGINT)) THEN s0 ELSE CAST(NULL AS DECIMAL(38,2)) END AS o2,
         hi0 AS o3,
         true AS _keep,
         CAST(NULL AS STRING) AS _err,
         s._t AS _t,
         s._d AS _d
  FROM extremes0 LATERAL VIEW stack(2, _t, 1L, _next, -1L) s AS _t, _d
  WHERE s._t >= 0 AND n > 0
Output format is aligned.
Tuples only is off.

\a \t
EXPLAIN DELTA PLAN FOR SELECT DISTINCT region FROM ex_c
\g | sed '/^-- block/q'
\a \t
----
Output format is unaligned.
Tuples only is on.
Maintained incrementally: yes
Spark jobs per tick: at most 2; none when nothing changed
The view itself:
  A tick looks up, besides what changed:
    for each group that changes: its sums
  Arrangements:
    none
  State kept:
    acc (k0, n) by (k0)
  -- body
  SELECT l0_c0 AS o0,
         CAST(NULL AS STRING) AS _err,
         l0_t AS _t,
         l0_d AS _d
  FROM (SELECT /*+ COALESCE(1) */ c0 AS l0_c0, _t AS l0_t, _d AS l0_d FROM leaf0)
  WHERE l0_t >= 0
  -- tail
  WITH changes AS (
    SELECT k0, _t, sum(n) AS n
    FROM (SELECT k0, _t, _d AS n FROM (SELECT /*+ COALESCE(1) */ * FROM delta)
      UNION ALL SELECT k0, -1 AS _t, n FROM (SELECT /*+ COALESCE(1) */ * FROM acc))
    GROUP BY k0, _t),
  running AS (
    SELECT k0, _t, sum(n) OVER (PARTITION BY k0 ORDER BY _t) AS n,
      lead(_t) OVER (PARTITION BY k0 ORDER BY _t) AS _next
    FROM changes)
  SELECT k0,
         n,
         k0 AS o0,
         true AS _keep,
         CAST(NULL AS STRING) AS _err,
         s._t AS _t,
         s._d AS _d
  FROM running LATERAL VIEW stack(2, _t, 1L, _next, -1L) s AS _t, _d
  WHERE s._t >= 0 AND n > 0
Output format is aligned.
Tuples only is off.

\a \t
EXPLAIN TIMESTAMP FOR SELECT * FROM ex_o WHERE id = 1;
\a \t
----
Output format is unaligned.
Tuples only is on.
                query timestamp: <time>
          oracle read timestamp: <time>
largest not in advance of upper: <time>
                          upper: [<time>]
                          since: [<time>]
        can respond immediately: <true or false>
                       timeline: EpochMilliseconds
source ex_o (<id>):
                  read frontier: [<time>]
                 write frontier: [<time>]
binding constraints:
  strict serializable: not before the oracle's <time>
Output format is aligned.
Tuples only is off.

\a \t
EXPLAIN TIMESTAMP FOR SELECT 1;
\a \t
----
Output format is unaligned.
Tuples only is on.
                query timestamp: <time>
          oracle read timestamp: <time>
largest not in advance of upper: none
                          upper: []
                          since: [0]
        can respond immediately: <true or false>
                       timeline: EpochMilliseconds
binding constraints:
  strict serializable: not before the oracle's <time>
Output format is aligned.
Tuples only is off.

EXPLAIN DELTA PLAN FOR SELECT id FROM ex_o LIMIT 1;
----
                                                   plan
-----------------------------------------------------------------------------------------------------------
 Maintained incrementally: yes
 Spark jobs per tick: at most 2; none when nothing changed
 The view itself:
   A tick looks up, besides what changed:
     for each group that changes: rows, 1 more than it lost
   Arrangements:
     none
   State kept:
     rows (b0) by () ordered by (b0)
   -- body
   SELECT l0_c0 AS o0,
          CAST(NULL AS STRING) AS _err,
          l0_t AS _t,
          l0_d AS _d
   FROM (SELECT /*+ COALESCE(1) */ c0 AS l0_c0, _t AS l0_t, _d AS l0_d FROM leaf0)
   WHERE l0_t >= 0
   -- tail
   WITH changes AS (
     SELECT b0, _t, sum(_d) AS _d
     FROM (SELECT b0, _t, _d FROM (SELECT /*+ COALESCE(1) */ * FROM delta)
       UNION ALL SELECT b0, -1 AS _t, _diff AS _d FROM (SELECT /*+ COALESCE(1) */ * FROM rows))
     GROUP BY b0, _t),
   versions AS (
     SELECT _t, lead(_t) OVER (ORDER BY _t) AS _next
     FROM (SELECT DISTINCT _t FROM changes)),
   contents AS (
     SELECT c.b0, v._t, v._next, sum(c._d) AS _n
     FROM versions v JOIN changes c ON v._t * 0 = c._t * 0 AND c._t <= v._t
     GROUP BY c.b0, v._t, v._next
     HAVING sum(c._d) > 0),
   ranked AS (
     SELECT *, sum(_n) OVER (PARTITION BY _t ORDER BY b0 ASC NULLS LAST ROWS UNBOUNDED PRECEDING) AS _upto
     FROM contents),
   result AS (
     SELECT b0 AS o0,
       true AS _keep,
       CAST(NULL AS STRING) AS _err,
       least(_upto, 1L) - greatest(_upto - _n, 0L) AS _m,
       _t,
       _next
     FROM ranked WHERE least(_upto, 1L) - greatest(_upto - _n, 0L) > 0)
   SELECT o0, _keep, _err, s._t AS _t, s._d AS _d
   FROM result LATERAL VIEW stack(2, _t, _m, _next, -_m) s AS _t, _d
   WHERE s._t >= 0
(45 rows)

EXPLAIN MATERIALIZED VIEW ex_o;
EXPLAIN MATERIALIZED VIEW nowhere;
EXPLAIN VIEW ex_m;
EXPLAIN ANALYZE SELECT 1;
EXPLAIN SELECT nothing FROM ex_o;
EXPLAIN INSERT INTO ex_o VALUES (1, 1, 1);
----
ERROR:  "ex_o" is not a materialized view
LINE 1: EXPLAIN MATERIALIZED VIEW ex_o;
                                  ^
ERROR:  relation "nowhere" does not exist
LINE 1: EXPLAIN MATERIALIZED VIEW nowhere;
                                  ^
ERROR:  "ex_m" is not a view
LINE 1: EXPLAIN VIEW ex_m;
                     ^
ERROR:  EXPLAIN options are not supported
HINT:  use EXPLAIN query, or one of: RAW PLAN, DECORRELATED PLAN, LOCALLY OPTIMIZED PLAN, OPTIMIZED PLAN, DELTA PLAN, PHYSICAL PLAN, TIMESTAMP, FILTER PUSHDOWN, PLAN
ERROR:  column "nothing" does not exist
LINE 1: EXPLAIN SELECT nothing FROM ex_o;
                       ^
ERROR:  syntax error at or near "INSERT"
LINE 1: EXPLAIN INSERT INTO ex_o VALUES (1, 1, 1);
                ^

-- Other plans, other forms, other things.
EXPLAIN RAW PLAN FOR SELECT id FROM ex_o WHERE customer IN (SELECT id FROM ex_c WHERE region = 'x');
EXPLAIN DECORRELATED PLAN AS TEXT FOR VIEW ex_j;
EXPLAIN OPTIMIZED PLAN FOR MATERIALIZED VIEW ex_m;
EXPLAIN OPTIMIZED PLAN FOR CREATE MATERIALIZED VIEW ex_n AS SELECT region, max(amount) FROM ex_j GROUP BY region;
EXPLAIN CREATE VIEW ex_n AS SELECT id FROM ex_o;
----
                plan
-------------------------------------
 Project (#0)
   Semi join on (#1 = #3)
     Get ex_o (id, customer, amount)
     Project (#0)
       Filter (#1 = 'x')
         Get ex_c (id, region)
(6 rows)
                 plan
---------------------------------------
 Project (#4, #2)
   Filter (#2::numeric(12,2) > 1.00)
     Join on (#1 = #3)
       Get ex_o (id, customer, amount)
       Get ex_c (id, region)
(5 rows)
                              plan
----------------------------------------------------------------
 Project (#0, #1, #2, #3)
   Reduce group by (#0) aggregates (count(*), sum(#1), max(#1))
     Project (#1, #0)
       Project (#1, #3)
         Join on (#0 = #2)
           Filter (#1::numeric(12,2) > 1.00)
             Project (#1, #2)
               Get ex_o (id, customer, amount)
           Get ex_c (id, region)
(9 rows)
                     plan
-----------------------------------------------
 Project (#0, #1)
   Reduce group by (#0) aggregates (max(#1))
     Project (#1, #0)
       Project (#1, #3)
         Join on (#0 = #2)
           Filter (#1::numeric(12,2) > 1.00)
             Project (#1, #2)
               Get ex_o (id, customer, amount)
           Get ex_c (id, region)
(9 rows)
               plan
-----------------------------------
 Project (#0)
   Get ex_o (id, customer, amount)
(2 rows)

CREATE INDEX ex_i ON ex_m (region);
EXPLAIN INDEX ex_i;
EXPLAIN PLAN FOR SELECT * FROM ex_m WHERE region = 'x';
----
CREATE INDEX
                                 plan
----------------------------------------------------------------------
 Index ex_i by (region), kept in memory on each replica of quickstart
   Get ex_m (region, n, total, top)
(2 rows)
                                   plan
---------------------------------------------------------------------------
 Project (#0, #1, #2, #3)
   Filter (#0 = 'x')
     Get ex_m (region, n, total, top)
 Answered without Spark: ex_m looked up in index ex_i by (region), one key
(4 rows)

\a \t
EXPLAIN PLAN AS JSON FOR SELECT id FROM ex_o WHERE customer = 3;
EXPLAIN TIMESTAMP AS JSON FOR SELECT id FROM ex_o;
\a \t
----
Output format is unaligned.
Tuples only is on.
{
  "plan": {
    "node": "Project",
    "text": "Project (#0)",
    "inputs": [
      {
        "node": "Filter",
        "text": "Filter (#1 = 3)",
        "inputs": [
          {
            "node": "Get",
            "text": "Get ex_o (id, customer, amount)",
            "inputs": []
          }
        ]
      }
    ]
  },
  "answered": [
    "Answered without Spark: ex_o read, it is small"
  ]
}
{
  "query_timestamp": <time>,
  "oracle_read_timestamp": <time>,
  "largest_not_in_advance_of_upper": <time>,
  "since": [
    <time>
  ],
  "upper": [
    <time>
  ],
  "can_respond_immediately": <true or false>,
  "timeline": "EpochMilliseconds",
  "constraints": [
    "strict serializable: not before the oracle's <time>"
  ],
  "sources": [
    {
      "id": "<id>",
      "read_frontier": [
        <time>
      ],
      "write_frontier": [
        <time>
      ]
    }
  ]
}
Output format is aligned.
Tuples only is off.

EXPLAIN INDEX ex_m;
EXPLAIN PLAN AS XML FOR SELECT 1;
EXPLAIN CREATE TABLE ex_n (a int);
EXPLAIN CREATE MATERIALIZED VIEW ex_n AS SELECT stddev(amount::double precision) AS s FROM ex_o;
----
ERROR:  "ex_m" is not an index
LINE 1: EXPLAIN INDEX ex_m;
                      ^
ERROR:  syntax error at or near "XML"
LINE 1: EXPLAIN PLAN AS XML FOR SELECT 1;
                        ^
ERROR:  EXPLAIN explains queries and views
HINT:  EXPLAIN CREATE MATERIALIZED VIEW ...
ERROR:  stddev(double precision) is not supported: it cannot be kept exactly as rows come and go
LINE 1: EXPLAIN CREATE MATERIALIZED VIEW ex_n AS SELECT stddev(amoun...
                                                        ^
HINT:  cast to numeric, e.g. stddev(x::numeric)

DROP TABLE ex_o, ex_c CASCADE;
----
DROP TABLE
