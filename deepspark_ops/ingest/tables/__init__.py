"""Tables: which columns are what, rows read in batches by Spark, features standardised and written as HDF5 shards."""
