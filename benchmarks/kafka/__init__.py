"""Kafka as a peer: a broker of its own, certificates, topics, and the settings of Spark's Kafka source and sink."""
