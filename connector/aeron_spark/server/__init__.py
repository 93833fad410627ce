"""The secure endpoint's server."""
