"""An HTTP server for one gallery, with a page to search it by image; needs the extra ``serve``."""
