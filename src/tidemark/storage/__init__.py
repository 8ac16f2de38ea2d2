"""STORAGE: makes what comes from outside definite, and records what others write back.

A source's data arrives at offsets that know nothing of our time. Its *remap* shard binds them to
timestamps, durably and before any data is written, so the same offsets carry the same timestamps
for ever:

    probe -> mint a binding (remap shard)  ->  write updates at the bound times  ->  append

    remap   at time 5000: partition 0 is complete up to offset 42
            at time 6000: partition 0 is complete up to offset 57
                                                  offsets 42..56 happened at time 6000

An ingestion (`source.py`) is the same for all sources; what differs is the upstream: a load
generator (`generated.py`) or a Kafka topic (`kafka/`).

What runs is told to the controller (`controller.py`), whose definitions are durable; it also serves
what collections hold to those above, and takes back what they compute.

Tables are written from SQL. All tables of a timeline share one commit log; a commit is one append
to it, and from there it is applied to every table it touches, so a write is atomic across tables
and its timestamp is the timeline's (`tables.py`).

What it does not do: it trusts nobody above it to be deterministic, and knows no SQL.
"""
