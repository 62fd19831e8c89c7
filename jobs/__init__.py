"""Commands: each reads like the figure in the paper that it runs."""
