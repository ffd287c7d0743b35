"""Arguments of the commands, one module per command. The modules do not import torch, so ``--help`` is fast."""
