"""Galleries in this process, kept in files of faiss."""
