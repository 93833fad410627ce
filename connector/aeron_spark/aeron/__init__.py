"""The adapter to Aeron's Java classes: the only package that imports jpype."""
