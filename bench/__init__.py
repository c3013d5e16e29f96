"""`make bench`: Outhaul beside its peers, measured in one run on private servers. Start it by `scripts/bench`."""
