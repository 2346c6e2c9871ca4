"""From faults to a healed run: incidents, their history in SQL, the ladder of remedies, alerts, the API."""
