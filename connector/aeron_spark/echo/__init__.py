"""Echo 1.0 and 2.0 of the aeron-guide, server and client: the tool to try a path through NAT and firewalls."""
