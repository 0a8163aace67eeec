"""Which options do commands share? Those of the settings, derived from the settings class; none is listed by hand."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from pipelines.layers import leaf_options
from stores.errors import SettingsError

_PREFIX = "setting:"


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add ``--pipeline``, ``--set`` and an option for every setting that has a flag. Values stay text until resolved."""
    parser.add_argument(
        "--pipeline", default="tfgrpo-learning", metavar="P", help="shipped pipeline by name, or a pipeline file"
    )
    for leaf in leaf_options():
        if leaf.flag is None:
            continue
        destination = _PREFIX + leaf.key
        help_text = f"{leaf.help} [default: {leaf.default}]".replace("%", "%%")
        if leaf.type is bool:
            parser.add_argument(leaf.flag, dest=destination, action="store_const", const="true", help=help_text)
        else:
            parser.add_argument(leaf.flag, dest=destination, metavar="X", help=help_text)
    parser.add_argument(
        "--set", dest="assignments", action="append", default=[], metavar="KEY=VALUE", help="any setting by dotted key"
    )


def asked_settings(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The settings given on the command line, as (dotted key, raw text). Raises ``SettingsError`` for a bad ``--set``."""
    for assignment in options.assignments:
        key, separator, value = assignment.partition("=")
        if not separator or not key:
            raise SettingsError.one("--set", repr(assignment), "KEY=VALUE, such as tfgrpo.min_spread=0.1")
        yield key, value
    for name, value in vars(options).items():
        if name.startswith(_PREFIX) and value is not None:
            yield name.removeprefix(_PREFIX), value
