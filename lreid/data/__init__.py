"""Read images, and build data sets, tasks and batches of them."""
