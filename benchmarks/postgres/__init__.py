"""The benchmarks on PostgreSQL: Raptor beside psycopg alone and beside the queues that others keep there."""
