"""The log as readers, writers, clients and the command line see it, and the pure planning of micro-batches."""
