"""Training: the loop, its batches and updates, run folders and signals."""
