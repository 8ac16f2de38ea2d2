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
--------------------------------------------
 Finish order by (#1 desc) limit 2 offset 0
   Project (#0, #2)
     Filter (#1 = 3)
       Get ex_o (id, customer, amount)
(4 rows)

EXPLAIN OPTIMIZED PLAN FOR SELECT region, sum(amount) FROM ex_j GROUP BY region HAVING count(*) > 1;
----
                          plan
---------------------------------------------------------
 Project (#0, #1)
   Filter (#2 > 1)
     Reduce group by (#0) aggregates (sum(#1), count(*))
       Project (#4, #2)
         Filter (#2::numeric(12,2) > 1.00)
           Join on (#1 = #3)
             Get ex_o (id, customer, amount)
             Get ex_c (id, region)
(8 rows)

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
Arrangements probed:
  ex_c by (id)
  ex_o by (customer)
State kept:
  accumulators (k0, n, n0, s0) by (k0)
  values of argument 0 ordered within (k0)
Spark jobs per tick: at most 2; none when nothing changed
-- block
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
Arrangements probed:
  none
State kept:
  accumulators (k0, n) by (k0)
Spark jobs per tick: at most 2; none when nothing changed
-- block
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
        can respond immediately: <true or false>
                       timeline: EpochMilliseconds
source ex_o (<id>):
                  read frontier: [<time>]
                 write frontier: [<time>]
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
        can respond immediately: <true or false>
                       timeline: EpochMilliseconds
Output format is aligned.
Tuples only is off.

EXPLAIN DELTA PLAN FOR SELECT id FROM ex_o LIMIT 1;
----
ERROR:  LIMIT cannot be maintained incrementally yet
HINT:  create the view without it and put LIMIT into the query that reads the view

EXPLAIN MATERIALIZED VIEW ex_o;
EXPLAIN MATERIALIZED VIEW nowhere;
EXPLAIN VIEW ex_m;
EXPLAIN ANALYZE SELECT 1;
EXPLAIN SELECT nothing FROM ex_o;
EXPLAIN INSERT INTO ex_o VALUES (1, 1, 1);
----
ERROR:  "ex_o" is not a materialized view
ERROR:  relation "nowhere" does not exist
ERROR:  "ex_m" is not a view
ERROR:  EXPLAIN options are not supported
HINT:  use EXPLAIN query
ERROR:  column "nothing" does not exist
ERROR:  syntax error at or near "INSERT"
HINT:  line 1, column 9

DROP TABLE ex_o, ex_c CASCADE;
----
DROP TABLE
