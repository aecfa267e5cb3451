"""Users and their rights: rules and logins as values and pure functions. Knows no connection and no file."""
