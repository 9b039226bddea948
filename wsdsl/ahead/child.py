"""A process that compiles: `python -m wsdsl.ahead.child` reads jobs, and writes what it made."""

from wsdsl.ahead.jobs import run
from wsdsl.child_process import serve

if __name__ == "__main__":
    serve(lambda job, tell: tell(run(job)))
