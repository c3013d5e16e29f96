"""`make soak`: the large sizes. Start it by `scripts/soak`."""
