"""Galleries: features and labels of images to search, save and change. Galleries need faiss or pymilvus."""

from lreid.gallery.filters import Filter
from lreid.gallery.gallery import Gallery, Matches

__all__ = ["Filter", "Gallery", "Matches"]
