"""Tidemark: incrementally maintained SQL views on Spark."""
