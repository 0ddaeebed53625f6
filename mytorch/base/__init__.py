"""What everything else stands on: settings, dtypes, errors, nested containers; imports nothing of the library."""
