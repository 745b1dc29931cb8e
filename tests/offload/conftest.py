from __future__ import annotations

from hypothesis import settings

# A deadline is a timed assertion. The first example pays for imports, and machines are shared.
settings.register_profile("seglog", deadline=None)
settings.load_profile("seglog")
