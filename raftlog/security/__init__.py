"""Authentication and authorization: ACLs, logins and quotas as values and pure functions, without connections or
files.
"""
