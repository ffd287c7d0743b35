"""Galleries in a database of Milvus."""
