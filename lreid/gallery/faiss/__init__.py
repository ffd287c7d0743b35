"""Galleries that run in this process and are stored in faiss files."""
