"""The formats of tables, a file each: what one looks like and what of it is digested. Spark reads them."""
