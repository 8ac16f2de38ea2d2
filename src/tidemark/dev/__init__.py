"""Servers for development, demos and tests, on loopback: a Kafka broker and a schema registry.

    kafka      Apache Kafka, one node          registry   Apicurio Registry

    tidemark dev kafka up ──▶ java kafka.Kafka ──▶ folder/data, folder/broker.log
          │                        │ holds a lock on
          └── writes ──▶ folder/broker.json, folder/broker.pid

A server outlives the command that starts it, and its folder says all about it: how to reach it
(`broker.json`) and whether it lives (whoever holds the lock on `broker.pid`; a lock ends with its
process, however that ends, so a killed server leaves nothing to clear up).

    broker = Broker.at("dev.tidemark/kafka", port=0)
    broker.start()
    broker.create_topic("orders", partitions=2)
    Producer(broker.client_settings()).produce("orders", b"a value")
    broker.stop()

Not for production: one node, no replicas, small memory, and beside the listener that is asked for,
one without a password for the broker itself. Nothing here is used by a Tidemark server.
"""
