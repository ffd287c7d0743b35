"""An HTTP server for one gallery, with a page for image search. Needs the extra ``serve``."""
