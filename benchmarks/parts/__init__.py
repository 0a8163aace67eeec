"""Parts of the product: seconds and bytes of one thing at a time."""
