"""Ready jobs for ``spark-submit``, and as functions ``build(spark, args)`` that return the query. Wiring only."""
