"""Galleries in this process, stored in faiss files."""
