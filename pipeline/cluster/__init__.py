"""The only package that knows Ray: plans become Ray Data pipelines over pools of actors."""

import os

# Both are read when ray is imported. The second reader of Ray Data starts 32 actors to list
# files, which starves a small cluster; shards are listed by their names, so nothing needs it.
os.environ.setdefault("RAY_DATA_USE_DATASOURCE_V2", "0")
os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
