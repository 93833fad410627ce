"""Jobs for ``spark-submit``. The function ``build(spark, args)`` of each starts its query and returns it."""
