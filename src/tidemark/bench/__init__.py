"""Benchmarks: each prints a readable table and, as its last line, one JSON object.

Comparisons run side by side in one process: these machines are shared, so only ratios travel.
"""
