"""The engine process: it owns the devices, holds keys resident and runs programs. Public side only; knows neither HTTP nor the database."""
