"""What the commands take: a module for each, light, so that ``--help`` need not wait for torch."""
