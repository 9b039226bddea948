"""A process that answers what it is asked."""

from wsdsl.child_process import serve

if __name__ == "__main__":
    serve(lambda asked, tell: tell(asked))
