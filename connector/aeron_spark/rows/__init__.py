"""Converts a program's rows (dicts, JSON, columns, pandas, numpy) to Arrow record batches. No I/O.

A value is stored unchanged, or refused with the number of its row and the name of its column.
"""
