"""Compiles SBE schemas (Simple Binary Encoding) into Arrow schemas and decode tables. Pure, except reading the file."""
