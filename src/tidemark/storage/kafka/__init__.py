"""Kafka topics as collections, definitely and exactly once; and collections as topics.

spec      what a source is
broker    what is asked of Kafka itself: partitions, watermarks, messages of a range
decode    bytes into columns, by Spark's own functions
upsert    messages into updates: what a message replaces is looked up in the collection itself
ingest    a source's part of the ingestion (storage/source.py)
"""
