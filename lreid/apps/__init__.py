"""What the commands do: a module for each, with its options (``add_arguments``) and its work (``run``)."""
