"""Adapts Aeron's Java classes; the only package that imports jpype."""
