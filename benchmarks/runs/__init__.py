"""Whole runs and services, in processes of their own."""
