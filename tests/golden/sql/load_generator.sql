CREATE SOURCE lg FROM LOAD GENERATOR AUCTION
  (SEED 7, USERS 50, AUCTIONS PER STEP 2, BIDS PER STEP 20, HISTORY 30, TICK INTERVAL '1ms', UP TO 100)
  FOR ALL TABLES WITH (TIMESTAMP INTERVAL '200ms');
\a
SHOW SOURCES;
\a
----
CREATE SOURCE
Output format is unaligned.
name|type|cluster|status|error
auctions|subsource|quickstart|<status>|
bids|subsource|quickstart|<status>|
lg|load-generator|quickstart|<status>|
users|subsource|quickstart|<status>|
(4 rows)
Output format is aligned.

CREATE MATERIALIZED VIEW lg_regions AS
  SELECT u.region, count(*) AS bids, sum(b.amount) AS total
  FROM bids b JOIN auctions a ON b.auction_id = a.id JOIN users u ON b.buyer = u.id
  GROUP BY u.region;
----
CREATE MATERIALIZED VIEW

SELECT * FROM lg;
INSERT INTO bids VALUES (1);
DROP TABLE bids;
DROP SOURCE bids;
----
ERROR:  source "lg" has several tables and cannot be read by itself
LINE 1: SELECT * FROM lg;
                      ^
HINT:  select from one of its tables: SHOW SOURCES lists them
ERROR:  "bids" is a subsource, not a table: it cannot be written to
LINE 1: INSERT INTO bids VALUES (1);
                    ^
ERROR:  "bids" belongs to source "lg"
HINT:  DROP SOURCE lg drops all of its tables
ERROR:  "bids" belongs to source "lg"
HINT:  DROP SOURCE lg drops all of its tables

CREATE SOURCE lg FROM LOAD GENERATOR AUCTION FOR ALL TABLES;
CREATE SOURCE lg2 FROM LOAD GENERATOR AUCTION FOR ALL TABLES;
CREATE SOURCE lg2 FROM LOAD GENERATOR AUCTION;
CREATE SOURCE lg2 FROM LOAD GENERATOR NOSUCH FOR ALL TABLES;
CREATE SOURCE lg2 FROM LOAD GENERATOR AUCTION (USERS 0) FOR ALL TABLES;
CREATE SOURCE lg2 FROM LOAD GENERATOR AUCTION (USERS many) FOR ALL TABLES;
CREATE SOURCE lg2 FROM LOAD GENERATOR AUCTION (NOSUCH 1) FOR ALL TABLES;
CREATE SOURCE lg2 FROM LOAD GENERATOR AUCTION (TICK INTERVAL 'soon') FOR ALL TABLES;
CREATE SOURCE lg2 FROM LOAD GENERATOR AUCTION (UP TO many) FOR ALL TABLES;
CREATE SOURCE lg2 FROM LOAD GENERATOR AUCTION FOR ALL TABLES WITH (NOSUCH = 1);
CREATE SOURCE lg2 FROM KAFKA BROKER 'localhost:9092' TOPIC 'x';
----
ERROR:  relation "lg" already exists
ERROR:  relation "users" already exists
ERROR:  load generator AUCTION has several tables (users, auctions, bids)
HINT:  add FOR ALL TABLES
ERROR:  load generator "nosuch" is not known
LINE 1: CREATE SOURCE lg2 FROM LOAD GENERATOR NOSUCH FOR ALL TABLES;
                                              ^
HINT:  known: auction, counter, key value, tpch
ERROR:  option "users" of a load generator is '0'
HINT:  it must be an integer from 1 to 10000000
ERROR:  load generator "auction" has no option "users_many"
HINT:  options: seed, users, auctions_per_step, bids_per_step, history
ERROR:  load generator "auction" has no option "nosuch"
HINT:  options: seed, users, auctions_per_step, bids_per_step, history
ERROR:  TICK INTERVAL takes a duration such as '100ms' or '1s', not 'soon'
ERROR:  load generator "auction" has no option "up_to_many"
HINT:  options: seed, users, auctions_per_step, bids_per_step, history
ERROR:  source option NOSUCH is not supported
HINT:  known: TIMESTAMP INTERVAL, RETAIN HISTORY FOR
ERROR:  only FROM KAFKA CONNECTION, WEBHOOK and LOAD GENERATOR sources are supported
HINT:  e.g. CREATE SOURCE s FROM LOAD GENERATOR AUCTION

DROP SOURCE lg;
DROP SOURCE lg CASCADE;
SHOW OBJECTS;
----
ERROR:  cannot drop lg because other objects depend on it: lg_regions
HINT:  use DROP ... CASCADE to drop them too
DROP SOURCE
 name | type
------+------
(0 rows)
