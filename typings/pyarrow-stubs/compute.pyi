# pyarrow.compute makes most of its functions at import time, where pyright cannot see them.
from typing import Any

def __getattr__(name: str) -> Any: ...
