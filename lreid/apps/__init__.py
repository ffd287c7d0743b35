"""The commands, one module per command with a function ``run``; the modules in ``arguments`` define their options."""
