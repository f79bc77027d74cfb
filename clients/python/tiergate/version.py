"""The version of this package, and what requests call it."""

import logging

VERSION = "0.1.0"
USER_AGENT = f"tiergate-python/{VERSION}"

LOGGER = logging.getLogger("tiergate")
