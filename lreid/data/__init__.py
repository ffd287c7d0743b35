"""Read images, and build data sets, tasks and batches from them.

Importing this package registers the schemes of its names, such as ``csv:PATH``.
"""

from lreid.data.datasets import register_scheme

register_scheme("csv:PATH", "lreid.data.tables")
register_scheme("own:PATH", "lreid.data.custom")
register_scheme("dev:NAME", "lreid.data.dev")
register_scheme("synthetic:DOMAIN", "lreid.data.synthetic")
register_scheme("rendered:DOMAIN", "lreid.data.rendered_set")
