"""Helpers that every room may import: files, untrusted input, labels, devices, optional packages."""
