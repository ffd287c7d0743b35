"""Images: data sets, tasks, batches, caches and synthetic images."""
