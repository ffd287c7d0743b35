"""Arguments of the commands, one module per command; none of these modules imports torch, so ``--help`` is fast."""
