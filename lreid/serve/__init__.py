"""An HTTP server for one gallery, with a page to search it by photographs. Needs the extra ``serve``."""
