-- A generator with one table needs no FOR ALL TABLES: the source itself is the table.
CREATE SOURCE lk_counter FROM LOAD GENERATOR COUNTER (MAX CARDINALITY 10, UP TO 1);
CREATE SOURCE lk_kv FROM LOAD GENERATOR KEY VALUE
  (KEYS 50, VALUE SIZE 12, BATCH SIZE 5, DELETE PERCENT 20, SEED 3, UP TO 1);
\a
SHOW SOURCES;
\a
SHOW COLUMNS FROM lk_kv;
----
CREATE SOURCE
CREATE SOURCE
Output format is unaligned.
name|type|cluster|status|error
lk_counter|load-generator|quickstart|<status>|
lk_kv|load-generator|quickstart|<status>|
(2 rows)
Output format is aligned.
 name  | nullable |  type
-------+----------+--------
 key   | f        | bigint
 value | f        | text
 step  | f        | bigint
(3 rows)

CREATE MATERIALIZED VIEW lk_keys AS
  SELECT count(*) AS n, min(key) AS low, max(key) AS high, max(length(value)) AS size FROM lk_kv;
SELECT * FROM lk_keys;
SELECT * FROM lk_counter;
SELECT key, value, step FROM lk_kv ORDER BY key LIMIT 3;
----
CREATE MATERIALIZED VIEW
 n  | low | high | size
----+-----+------+------
 50 |   0 |   49 |   12
(1 row)
 counter
---------
       1
(1 row)
 key |    value     | step
-----+--------------+------
   0 | qdZpP5EvV5PE |    0
   1 | TJV5t3v7Dk26 |    0
   2 | pV-_CvUSlDj6 |    0
(3 rows)

INSERT INTO lk_counter VALUES (1);
DROP SOURCE lk_kv;
DROP SOURCE lk_kv CASCADE;
DROP SOURCE lk_counter;
----
ERROR:  "lk_counter" is a source, not a table: it cannot be written to
LINE 1: INSERT INTO lk_counter VALUES (1);
                    ^
ERROR:  cannot drop lk_kv because other objects depend on it: lk_keys
HINT:  use DROP ... CASCADE to drop them too
DROP SOURCE
DROP SOURCE

-- With it, the table has the generator's name.
CREATE SOURCE lk_counter FROM LOAD GENERATOR COUNTER (UP TO 1) FOR ALL TABLES;
\a
SHOW SOURCES;
\a
SELECT * FROM counter;
DROP SOURCE lk_counter;
----
CREATE SOURCE
Output format is unaligned.
name|type|cluster|status|error
counter|subsource|quickstart|<status>|
lk_counter|load-generator|quickstart|<status>|
(2 rows)
Output format is aligned.
 counter
---------
       1
(1 row)
DROP SOURCE

CREATE SOURCE lk_tpch FROM LOAD GENERATOR TPCH (SCALE FACTOR 0.001, TICK INTERVAL '1s', UP TO 1)
  FOR ALL TABLES;
\a
SHOW SOURCES;
\a
SHOW COLUMNS FROM lineitem;
----
CREATE SOURCE
Output format is unaligned.
name|type|cluster|status|error
customer|subsource|quickstart|<status>|
lineitem|subsource|quickstart|<status>|
lk_tpch|load-generator|quickstart|<status>|
nation|subsource|quickstart|<status>|
orders|subsource|quickstart|<status>|
part|subsource|quickstart|<status>|
partsupp|subsource|quickstart|<status>|
region|subsource|quickstart|<status>|
supplier|subsource|quickstart|<status>|
(9 rows)
Output format is aligned.
      name       | nullable |     type
-----------------+----------+---------------
 l_orderkey      | f        | bigint
 l_partkey       | f        | bigint
 l_suppkey       | f        | bigint
 l_linenumber    | f        | integer
 l_quantity      | f        | numeric(15,2)
 l_extendedprice | f        | numeric(15,2)
 l_discount      | f        | numeric(15,2)
 l_tax           | f        | numeric(15,2)
 l_returnflag    | f        | text
 l_linestatus    | f        | text
 l_shipdate      | f        | date
 l_commitdate    | f        | date
 l_receiptdate   | f        | date
 l_shipinstruct  | f        | text
 l_shipmode      | f        | text
 l_comment       | f        | text
(16 rows)

SELECT n_name, count(*) AS customers FROM customer
  JOIN nation ON c_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey
  WHERE r_name = 'ASIA' GROUP BY n_name ORDER BY n_name;
SELECT l_returnflag, l_linestatus, count(*) AS lines, sum(l_quantity) AS quantity,
  sum(l_extendedprice * (1 - l_discount)) AS revenue
  FROM lineitem WHERE l_shipdate <= date '1998-09-02'
  GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus;
SELECT count(*) AS orders, max(o_orderkey) AS last FROM orders;
DROP SOURCE lk_tpch;
----
  n_name   | customers
-----------+-----------
 CHINA     |         7
 INDIA     |         6
 INDONESIA |         6
 JAPAN     |         3
 VIETNAM   |        10
(5 rows)
 l_returnflag | l_linestatus | lines | quantity |    revenue
--------------+--------------+-------+----------+---------------
 A            | F            |  1610 | 40949.00 | 38961223.1583
 N            | F            |    58 |  1423.00 |  1351972.3420
 N            | O            |  2817 | 71019.00 | 67397817.5818
 R            | F            |  1468 | 37824.00 | 35926272.4521
(4 rows)
 orders | last
--------+------
   1500 | 5988
(1 row)
DROP SOURCE

CREATE SOURCE lk FROM LOAD GENERATOR TPCH;
CREATE SOURCE lk FROM LOAD GENERATOR TPCH (SCALE FACTOR 0) FOR ALL TABLES;
CREATE SOURCE lk FROM LOAD GENERATOR TPCH (SCALE FACTOR 0.01, REFRESH 20000) FOR ALL TABLES;
CREATE SOURCE lk FROM LOAD GENERATOR COUNTER (SEED 1);
CREATE SOURCE lk FROM LOAD GENERATOR KEY VALUE (KEYS 5, BATCH SIZE 6);
CREATE SOURCE lk FROM LOAD GENERATOR KEY;
SHOW OBJECTS;
----
ERROR:  load generator TPCH has several tables (region, nation, part, supplier, partsupp, customer, orders, lineitem)
HINT:  add FOR ALL TABLES
ERROR:  option "scale_factor" of a load generator is '0'
HINT:  it must be a number from 0.001 to 10
ERROR:  option "refresh" of a load generator is 20000
HINT:  it must be at most the number of orders, 15000
ERROR:  load generator "counter" has no option "seed"
HINT:  options: max_cardinality
ERROR:  option "batch_size" of a load generator is 6
HINT:  it must be at most KEYS, 5
ERROR:  load generator "key" is not known
LINE 1: CREATE SOURCE lk FROM LOAD GENERATOR KEY;
                                             ^
HINT:  known: auction, counter, key value, tpch
 name | type
------+------
(0 rows)
