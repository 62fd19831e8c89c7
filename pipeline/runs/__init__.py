"""Runs on disk: stage directories by fingerprint, shards as atomic files, leases, manifests."""
