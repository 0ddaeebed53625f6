"""The lowest layer, which all other packages import: settings, dtypes, errors and nested containers."""
