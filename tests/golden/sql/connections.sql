-- Secrets and connections: what is shown of them, and what needs what.
CREATE SECRET cn_p AS 'hunter2';
CREATE SECRET IF NOT EXISTS cn_p AS 'hunter3';
CREATE SECRET cn_p AS 'hunter4';
CREATE CONNECTION cn_k TO KAFKA (BROKERS ('a:9092', 'b:9092'), SASL USERNAME = 'u', SASL PASSWORD = SECRET cn_p);
CREATE CONNECTION cn_r TO CONFLUENT SCHEMA REGISTRY (URL 'http://r:8081', USERNAME 'u', PASSWORD SECRET cn_p);
----
CREATE SECRET
NOTICE:  secret "cn_p" already exists, skipping
CREATE SECRET
ERROR:  secret "cn_p" already exists
CREATE CONNECTION
CREATE CONNECTION

ALTER SECRET cn_p AS 'hunter5';
ALTER SECRET cn_k AS 'hunter5';
ALTER SECRET cn_none AS 'hunter5';
ALTER SECRET cn_p 'hunter5';
ALTER CONNECTION cn_k SET (BROKER 'c:1'), RESET (SASL USERNAME);
ALTER CONNECTION cn_k SET (RETAIN HISTORY FOR '1 day');
ALTER CONNECTION cn_k SET (BROKER 'c:1');
ALTER CONNECTION cn_none SET (BROKER 'c:1');
----
ALTER SECRET
ERROR:  "cn_k" is not a secret
LINE 1: ALTER SECRET cn_k AS 'hunter5';
                     ^
ERROR:  secret "cn_none" does not exist
LINE 1: ALTER SECRET cn_none AS 'hunter5';
                     ^
HINT:  CREATE SECRET makes one, SHOW SECRETS lists them
ERROR:  syntax error in ALTER SECRET
HINT:  ALTER SECRET name AS 'the value'
ERROR:  SASL_SSL needs SASL USERNAME
ERROR:  option RETAIN is not supported here
HINT:  known: BROKER, BROKERS, SECURITY PROTOCOL, SASL MECHANISMS, SASL USERNAME, SASL PASSWORD, SSL CERTIFICATE AUTHORITY, SSL CERTIFICATE, SSL KEY, URL, USERNAME, PASSWORD
ALTER CONNECTION
ERROR:  connection "cn_none" does not exist
LINE 1: ALTER CONNECTION cn_none SET (BROKER 'c:1');
                         ^
HINT:  CREATE CONNECTION makes one, SHOW CONNECTIONS lists them

SHOW SECRETS;
SHOW CONNECTIONS;
SHOW CREATE SECRET cn_p;
SHOW CREATE CONNECTION cn_r;
SHOW CREATE CONNECTION cn_p;
SELECT name, type, create_sql FROM mz_objects WHERE name LIKE 'cn_%' ORDER BY name;
----
 name
------
 cn_p
(1 row)
 name |           type
------+---------------------------
 cn_k | kafka
 cn_r | confluent-schema-registry
(2 rows)
 name |         create_sql
------+-----------------------------
 cn_p | CREATE SECRET cn_p AS '***'
(1 row)
 name |                                                  create_sql
------+---------------------------------------------------------------------------------------------------------------
 cn_r | CREATE CONNECTION cn_r TO CONFLUENT SCHEMA REGISTRY (URL 'http://r:8081', USERNAME 'u', PASSWORD SECRET cn_p)
(1 row)
ERROR:  "cn_p" is not a connection
LINE 1: SHOW CREATE CONNECTION cn_p;
                               ^
 name |    type    |                                                  create_sql
------+------------+---------------------------------------------------------------------------------------------------------------
 cn_k | connection | CREATE CONNECTION cn_k TO KAFKA (SASL USERNAME = 'u', BROKER = 'c:1', SASL PASSWORD = SECRET cn_p)
 cn_p | secret     | CREATE SECRET cn_p AS '***'
 cn_r | connection | CREATE CONNECTION cn_r TO CONFLUENT SCHEMA REGISTRY (URL 'http://r:8081', USERNAME 'u', PASSWORD SECRET cn_p)
(3 rows)

SELECT * FROM cn_p;
SELECT * FROM cn_k;
INSERT INTO cn_k VALUES (1);
SUBSCRIBE cn_k;
CREATE VIEW cn_v AS SELECT * FROM cn_k;
SHOW COLUMNS FROM cn_k;
----
ERROR:  "cn_p" is a secret, not a relation: it cannot be read
LINE 1: SELECT * FROM cn_p;
                      ^
ERROR:  "cn_k" is a connection, not a relation: it cannot be read
LINE 1: SELECT * FROM cn_k;
                      ^
ERROR:  "cn_k" is a connection, not a table: it cannot be written to
LINE 1: INSERT INTO cn_k VALUES (1);
                    ^
ERROR:  "cn_k" is a connection, not a relation: it cannot be read
LINE 1: SUBSCRIBE cn_k;
                  ^
ERROR:  "cn_k" is a connection, not a relation: it cannot be read
LINE 1: CREATE VIEW cn_v AS SELECT * FROM cn_k;
                                          ^
ERROR:  "cn_k" is a connection, not a relation: it cannot be read
LINE 1: SHOW COLUMNS FROM cn_k;
                          ^

-- What does not fit together.
CREATE SECRET cn_q 'hunter2';
CREATE CONNECTION cn_x TO KAFKA (SASL USERNAME 'u');
CREATE CONNECTION cn_x TO KAFKA (BROKER 'a:1', BROKERS ('b:1'));
CREATE CONNECTION cn_x TO KAFKA (BROKER 'a:1', SASL USERNAME 'u', SASL PASSWORD 'hunter2');
CREATE CONNECTION cn_x TO KAFKA (BROKER 'a:1', SASL USERNAME 'u', SASL PASSWORD = SECRET cn_none);
CREATE CONNECTION cn_x TO KAFKA (BROKER 'a:1', SASL USERNAME 'u', SASL PASSWORD = SECRET cn_k);
CREATE CONNECTION cn_x TO KAFKA (BROKER 'a:1', SASL USERNAME 'u');
CREATE CONNECTION cn_x TO KAFKA (BROKER 'a:1', SECURITY PROTOCOL 'TLS');
CREATE CONNECTION cn_x TO KAFKA (BROKER 'a:1', SECURITY PROTOCOL 'SSL', SASL USERNAME 'u');
CREATE CONNECTION cn_x TO KAFKA (BROKER 'a:1', SSL CERTIFICATE 'c');
CREATE CONNECTION cn_x TO KAFKA (BROKER 'a:1', NOSUCH 'c');
CREATE CONNECTION cn_x TO CONFLUENT SCHEMA REGISTRY (URL 'r:8081');
CREATE CONNECTION cn_x TO CONFLUENT SCHEMA REGISTRY (URL 'http://u:hunter2@r:8081');
CREATE CONNECTION cn_x TO CONFLUENT SCHEMA REGISTRY (URL 'http://r', USERNAME 'u');
CREATE CONNECTION cn_x TO MYSQL (HOST 'h');
CREATE SOURCE cn_s FROM KAFKA CONNECTION cn_none (TOPIC 't') FORMAT TEXT;
CREATE SOURCE cn_s FROM KAFKA CONNECTION cn_p (TOPIC 't') FORMAT TEXT;
CREATE SOURCE cn_s FROM KAFKA CONNECTION cn_r (TOPIC 't') FORMAT TEXT;
CREATE SOURCE cn_s FROM KAFKA CONNECTION cn_k (TOPIC 't');
CREATE SINK cn_s FROM cn_none INTO KAFKA CONNECTION cn_k (TOPIC 't') KEY (a) FORMAT JSON ENVELOPE UPSERT;
CREATE SINK cn_s FROM cn_p INTO KAFKA CONNECTION cn_k (TOPIC 't') KEY (a) FORMAT JSON ENVELOPE UPSERT;
CREATE SINK cn_s FROM cn_p INTO KAFKA CONNECTION cn_k (TOPIC 't') FORMAT JSON ENVELOPE UPSERT;
----
ERROR:  syntax error in CREATE SECRET
HINT:  CREATE SECRET name AS 'the value'
ERROR:  a Kafka connection needs BROKER or BROKERS
HINT:  e.g. BROKER 'localhost:9092', or BROKERS ('a:9092', 'b:9092')
ERROR:  a Kafka connection needs BROKER or BROKERS
HINT:  e.g. BROKER 'localhost:9092', or BROKERS ('a:9092', 'b:9092')
ERROR:  SASL PASSWORD takes a secret, not a text
HINT:  CREATE SECRET p AS '...', then SASL PASSWORD = SECRET p
ERROR:  secret "cn_none" does not exist
LINE 1: ...R 'a:1', SASL USERNAME 'u', SASL PASSWORD = SECRET cn_none);
                                                              ^
HINT:  CREATE SECRET makes one, SHOW SECRETS lists them
ERROR:  "cn_k" is not a secret
LINE 1: ...OKER 'a:1', SASL USERNAME 'u', SASL PASSWORD = SECRET cn_k);
                                                                 ^
ERROR:  SASL_SSL needs SASL PASSWORD
ERROR:  SECURITY PROTOCOL is not 'TLS'
HINT:  use one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
ERROR:  SASL options mean nothing with SSL
ERROR:  SSL CERTIFICATE and SSL KEY go together
ERROR:  option NOSUCH is not supported here
HINT:  known: BROKER, BROKERS, SECURITY PROTOCOL, SASL MECHANISMS, SASL USERNAME, SASL PASSWORD, SSL CERTIFICATE AUTHORITY, SSL CERTIFICATE, SSL KEY
ERROR:  URL takes an address such as 'http://localhost:8081', without a password in it
HINT:  a password goes into a secret: PASSWORD = SECRET p
ERROR:  URL takes an address such as 'http://localhost:8081', without a password in it
HINT:  a password goes into a secret: PASSWORD = SECRET p
ERROR:  USERNAME and PASSWORD go together
ERROR:  only connections TO KAFKA and TO CONFLUENT SCHEMA REGISTRY are supported
HINT:  e.g. CREATE CONNECTION k TO KAFKA (BROKER 'localhost:9092')
ERROR:  connection "cn_none" does not exist
LINE 1: CREATE SOURCE cn_s FROM KAFKA CONNECTION cn_none (TOPIC 't')...
                                                 ^
HINT:  CREATE CONNECTION makes one, SHOW CONNECTIONS lists them
ERROR:  "cn_p" is not a connection
LINE 1: CREATE SOURCE cn_s FROM KAFKA CONNECTION cn_p (TOPIC 't') FO...
                                                 ^
ERROR:  "cn_r" is not a connection to Kafka
LINE 1: CREATE SOURCE cn_s FROM KAFKA CONNECTION cn_r (TOPIC 't') FO...
                                                 ^
ERROR:  a Kafka source needs a format
HINT:  add FORMAT ..., or KEY FORMAT ... VALUE FORMAT
ERROR:  relation "cn_none" does not exist
LINE 1: CREATE SINK cn_s FROM cn_none INTO KAFKA CONNECTION cn_k (TO...
                              ^
ERROR:  "cn_p" is a secret, not a relation: it cannot be read
LINE 1: CREATE SINK cn_s FROM cn_p INTO KAFKA CONNECTION cn_k (TOPIC...
                              ^
ERROR:  a Kafka sink needs a key
HINT:  add KEY (...) with columns of it

DROP SECRET cn_p;
DROP CONNECTION cn_p;
DROP CONNECTION cn_k;
DROP SECRET cn_p CASCADE;
DROP SECRET IF EXISTS cn_p;
SHOW CONNECTIONS;
SHOW SECRETS;
----
ERROR:  cannot drop cn_p because other objects depend on it: cn_k, cn_r
HINT:  use DROP ... CASCADE to drop them too
ERROR:  "cn_p" is not a connection
LINE 1: DROP CONNECTION cn_p;
                        ^
DROP CONNECTION
DROP SECRET
NOTICE:  secret "cn_p" does not exist, skipping
DROP SECRET
 name | type
------+------
(0 rows)
 name
------
(0 rows)
