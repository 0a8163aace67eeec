"""Sources of rows: text files, Parquet files, folders, Hugging Face datasets. ``open_source`` picks one by name."""

from tfgrpo.pipelines.datasets.sources.base import Row, RowSource, other_encoding, row_changed
from tfgrpo.pipelines.datasets.sources.files import JoinedSource, open_source

__all__ = ["JoinedSource", "Row", "RowSource", "open_source", "other_encoding", "row_changed"]
