"""Users and their rights: rules, logins and quotas as values and pure functions. Knows no connection and no file."""
