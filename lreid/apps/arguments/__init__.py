"""Arguments of the commands, one module per command; no module imports torch, so ``--help`` is fast."""
