"""The secure endpoint's core: handshake, keys, records, limits. Clock, entropy and I/O are arguments."""
