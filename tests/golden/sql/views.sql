CREATE TABLE vw_customers (id int NOT NULL, name text NOT NULL, region text);
CREATE TABLE vw_orders (id int NOT NULL, customer int, amount numeric(10, 2), day date);
INSERT INTO vw_customers VALUES (1, 'Ada', 'north'), (2, 'Bob', 'south'), (3, 'Cyd', NULL);
INSERT INTO vw_orders VALUES
  (10, 1, 100.00, '2024-01-01'), (11, 1, 50.50, '2024-01-02'), (12, 2, 7.25, '2024-01-02'),
  (13, 3, 1.00, NULL), (14, NULL, 9.99, '2024-01-03');
----
CREATE TABLE
CREATE TABLE
INSERT 0 3
INSERT 0 5

CREATE VIEW vw_named AS
  SELECT o.id, c.name, coalesce(c.region, 'nowhere') AS region, o.amount, o.day
  FROM vw_orders o JOIN vw_customers c ON o.customer = c.id;
SELECT * FROM vw_named ORDER BY id;
----
CREATE VIEW
 id | name | region  | amount |    day
----+------+---------+--------+------------
 10 | Ada  | north   | 100.00 | 2024-01-01
 11 | Ada  | north   |  50.50 | 2024-01-02
 12 | Bob  | south   |   7.25 | 2024-01-02
 13 | Cyd  | nowhere |   1.00 |
(4 rows)

-- A view on a view, maintained.
CREATE MATERIALIZED VIEW vw_regions AS
  SELECT region, count(*) AS orders, sum(amount) AS total, min(amount) AS low, max(day) AS latest,
    avg(amount) AS mean
  FROM vw_named GROUP BY region;
SELECT * FROM vw_regions ORDER BY region;
----
CREATE MATERIALIZED VIEW
 region  | orders | total  |  low  |   latest   | mean
---------+--------+--------+-------+------------+-------
 north   |      2 | 150.50 | 50.50 | 2024-01-02 | 75.25
 nowhere |      1 |   1.00 |  1.00 |            |     1
 south   |      1 |   7.25 |  7.25 | 2024-01-02 |  7.25
(3 rows)

-- Maintained HAVING, DISTINCT, expressions, renamed columns, three-way and self joins.
CREATE MATERIALIZED VIEW vw_big (r, n) AS
  SELECT region, count(*) FROM vw_named GROUP BY region HAVING sum(amount) > 5 AND count(*) < 10;
CREATE MATERIALIZED VIEW vw_days AS SELECT DISTINCT day, amount > 20 AS dear FROM vw_orders;
CREATE MATERIALIZED VIEW vw_labels AS
  SELECT id, upper(name) || '/' || region AS label,
    CASE WHEN amount >= 100 THEN 'large' WHEN amount > 5 THEN 'medium' ELSE 'small' END AS size,
    (amount * 2)::int AS twice, day + 7 AS week_later
  FROM vw_named WHERE day IS NOT NULL;
CREATE MATERIALIZED VIEW vw_pairs AS
  SELECT a.id AS first, b.id AS second FROM vw_orders a, vw_orders b
  WHERE a.customer = b.customer AND a.id < b.id;
CREATE MATERIALIZED VIEW vw_total AS SELECT count(*) AS n, sum(amount) AS total FROM vw_orders;
----
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW
CREATE MATERIALIZED VIEW

SELECT * FROM vw_big ORDER BY r;
----
   r   | n
-------+---
 north | 2
 south | 1
(2 rows)

SELECT * FROM vw_days ORDER BY day, dear;
----
    day     | dear
------------+------
 2024-01-01 | t
 2024-01-02 | f
 2024-01-02 | t
 2024-01-03 | f
            | f
(5 rows)

SELECT * FROM vw_labels ORDER BY id;
----
 id |   label   |  size  | twice | week_later
----+-----------+--------+-------+------------
 10 | ADA/north | large  |   200 | 2024-01-08
 11 | ADA/north | medium |   101 | 2024-01-09
 12 | BOB/south | medium |    15 | 2024-01-09
(3 rows)

SELECT * FROM vw_pairs;
----
 first | second
-------+--------
    10 |     11
(1 row)

SELECT * FROM vw_total;
----
 n | total
---+--------
 5 | 168.74
(1 row)

-- A materialized view on a materialized view, and on a view of one.
CREATE VIEW vw_rich AS SELECT * FROM vw_regions WHERE total > 5;
CREATE MATERIALIZED VIEW vw_summary AS
  SELECT count(*) AS regions, sum(orders) AS orders, max(total) AS best FROM vw_rich;
SELECT * FROM vw_summary;
----
CREATE VIEW
CREATE MATERIALIZED VIEW
 regions | orders |  best
---------+--------+--------
       2 |      3 | 150.50
(1 row)

-- Every change is in everything that is read after it.
INSERT INTO vw_orders VALUES (15, 2, 200.00, '2024-02-01'), (16, 1, 0.50, '2024-01-01');
SELECT * FROM vw_regions ORDER BY region;
SELECT * FROM vw_summary;
SELECT * FROM vw_pairs ORDER BY first, second;
----
INSERT 0 2
 region  | orders | total  | low  |   latest   |        mean
---------+--------+--------+------+------------+---------------------
 north   |      3 | 151.00 | 0.50 | 2024-01-02 | 50.3333333333333333
 nowhere |      1 |   1.00 | 1.00 |            |                   1
 south   |      2 | 207.25 | 7.25 | 2024-02-01 |             103.625
(3 rows)
 regions | orders |  best
---------+--------+--------
       2 |      5 | 207.25
(1 row)
 first | second
-------+--------
    10 |     11
    10 |     16
    11 |     16
    12 |     15
(4 rows)

UPDATE vw_customers SET region = 'north' WHERE id = 2;
SELECT * FROM vw_regions ORDER BY region;
SELECT * FROM vw_summary;
----
UPDATE 1
 region  | orders | total  | low  |   latest   | mean
---------+--------+--------+------+------------+-------
 north   |      5 | 358.25 | 0.50 | 2024-02-01 | 71.65
 nowhere |      1 |   1.00 | 1.00 |            |     1
(2 rows)
 regions | orders |  best
---------+--------+--------
       1 |      5 | 358.25
(1 row)

DELETE FROM vw_orders WHERE id = 15;
SELECT * FROM vw_regions ORDER BY region;
SELECT * FROM vw_total;
----
DELETE 1
 region  | orders | total  | low  |   latest   |  mean
---------+--------+--------+------+------------+---------
 north   |      4 | 158.25 | 0.50 | 2024-01-02 | 39.5625
 nowhere |      1 |   1.00 | 1.00 |            |       1
(2 rows)
 n | total
---+--------
 6 | 169.24
(1 row)

DELETE FROM vw_orders;
SELECT * FROM vw_regions;
SELECT * FROM vw_total;
SELECT * FROM vw_summary;
----
DELETE 6
 region | orders | total | low | latest | mean
--------+--------+-------+-----+--------+------
(0 rows)
 n | total
---+-------
 0 |
(1 row)
 regions | orders | best
---------+--------+------
       0 |        |
(1 row)

-- Several views joined in one query, at one time.
INSERT INTO vw_orders VALUES (1, 1, 1, NULL);
SELECT t.n, r.orders, s.regions FROM vw_total t, vw_regions r, vw_summary s;
----
INSERT 0 1
 n | orders | regions
---+--------+---------
 1 |      1 |       0
(1 row)

CREATE VIEW vw_orders AS SELECT 1 AS one;
CREATE VIEW IF NOT EXISTS vw_rich AS SELECT 1 AS one;
CREATE MATERIALIZED VIEW vw_two AS SELECT 1 AS a, 2 AS a;
----
ERROR:  relation "vw_orders" already exists
NOTICE:  relation "vw_rich" already exists, skipping
CREATE VIEW
ERROR:  column "a" specified more than once

DROP TABLE vw_customers, vw_orders CASCADE;
SHOW VIEWS;
SHOW MATERIALIZED VIEWS;
----
DROP TABLE
 name
------
(0 rows)
 name | cluster | status | error
------+---------+--------+-------
(0 rows)
