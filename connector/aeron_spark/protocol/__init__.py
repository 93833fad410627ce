"""The pure core of the secure endpoint: handshake, keys, records, limits. Time and entropy are arguments."""
