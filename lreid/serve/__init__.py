"""An HTTP server for one gallery, with a page for image search; needs the extra ``serve``."""
