"""How many workers of each service run: by what waits (`python -m shared.scaler`), or by hand (`cairn scale`)."""
