"""The store on PostgreSQL, for many nodes. psycopg comes with the extra `postgres` and is imported here alone."""
