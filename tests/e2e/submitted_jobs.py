"""Runs jobs one after the other in one Spark driver, for ``spark-submit``; each makes a session and stops it.

``spark-submit ... submitted_jobs.py JOBS``: ``JOBS`` is a JSON list of lists, each with the file of a job and its
arguments.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    for job, *arguments in json.loads(sys.argv[1]):
        sys.path[0] = str(Path(job).parent)  # as spark-submit sets it for this job
        sys.argv[:] = [job, *arguments]
        runpy.run_path(job, run_name="__main__")
