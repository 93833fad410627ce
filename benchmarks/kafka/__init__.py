"""Kafka as a peer: a broker that the benchmarks start, certificates, and settings of Spark's Kafka source and sink."""
