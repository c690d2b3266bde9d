"""Federated benchmarks: users, regions and their private samples."""
