"""Training: the training loop, batches, updates, run folders and signals."""
