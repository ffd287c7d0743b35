"""Read images, and build data sets, tasks and batches from them."""
