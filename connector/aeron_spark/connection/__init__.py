"""The runtime of clients and servers: event loop, links, connections, listeners, calls and transfers."""
