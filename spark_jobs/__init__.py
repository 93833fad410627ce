"""Ready jobs for ``spark-submit``. Each has a function ``build(spark, args)``, which starts its query and returns it."""
