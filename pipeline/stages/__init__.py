"""The steps of a run: each reads columns of the row and adds its own. No stage knows Ray."""
