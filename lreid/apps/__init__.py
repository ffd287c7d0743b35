"""What the commands do (``run``), a module for each; those in ``arguments`` hold what they take."""
