"""The commands (``run``), one module per command; the modules in ``arguments`` define their arguments."""
