"""The only package that knows Ray: plans become Ray Data pipelines over pools of actors."""
