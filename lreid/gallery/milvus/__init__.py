"""Galleries in a Milvus database."""
