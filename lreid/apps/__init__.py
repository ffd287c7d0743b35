"""What the commands do: train, test, search, report, sweep, data, zoo, export."""
