"""A client or a server over any transport: handshakes, links, connections, calls, and the loop that runs them."""
