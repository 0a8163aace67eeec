"""Install a checkout, when editable, by the path `src`: type checkers do not follow the import hook that is the default.

`src` holds a link to `tfgrpo` alone, so that no other folder of the checkout becomes a name to import.
"""

import sys
from pathlib import Path

from setuptools import setup

of_a_checkout = "editable_wheel" in sys.argv and Path("src").is_dir()  # a source archive has no links
setup(package_dir={"": "src"} if of_a_checkout else {})
