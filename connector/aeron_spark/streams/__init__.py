"""The durable store of a server: named, partitioned streams that are written in transactions.

Rows are in Aeron recordings. A stream's journal decides which of them are committed.
"""
