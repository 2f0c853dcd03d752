"""What a run looked like: pictures, tables and progress, made from its records alone."""
