"""Servers and clients of the aeron-guide's Echo protocols 1.0 and 2.0, to test a path through NAT and firewalls."""
