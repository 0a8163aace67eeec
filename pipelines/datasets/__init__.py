"""Items read from text files, Parquet files, folders and Hugging Face datasets."""

__all__ = ["datasets", "items", "text_forms"]
