"""`python -m onnxq` is the same as the command `onnxq`."""

from onnxq.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
