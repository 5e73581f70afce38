"""What developers run: `nox` for everything, `nox -s NAME` for one session, `nox -l` for the list."""

import nox

nox.options.sessions = ["lint", "types", "layers", "tests", "corpus"]
nox.options.reuse_existing_virtualenvs = True

REAL_MODELS = "tests/real/requirements.txt"


@nox.session
def lint(session: nox.Session) -> None:
    """Style and format."""
    session.install("-e", ".[lint]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict."""
    session.install("-e", ".[lint]")
    session.run("mypy")


@nox.session
def layers(session: nox.Session) -> None:
    """Each layer imports only from those below it."""
    session.install("-e", ".[lint]")
    session.run("lint-imports")


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """The tests, real models included."""
    session.install("-e", ".[test,distributed]")
    session.install("--no-deps", "-r", REAL_MODELS)
    session.run("pytest", "tests", "-n", "2", *session.posargs)


@nox.session(python=["3.11", "3.13"])
@nox.parametrize("pytest", ["8.2", "8.4", "9"])
def plugin(session: nox.Session, pytest: str) -> None:
    """The tests of the plugin and of the example project, with each pytest that is supported."""
    session.install("-e", ".[test]", f"pytest=={pytest}.*")
    session.run("pytest", "tests/plugin", "tests/test_downstream.py", "-n", "2", *session.posargs)


@nox.session
def nightly(session: nox.Session) -> None:
    """The properties and fuzz tests with many examples."""
    session.install("-e", ".[test]")
    paths = ("tests/security", "tests/properties", "tests/strategies")
    session.run("pytest", *paths, "--hypothesis-profile", "nightly", "-n", "2", *session.posargs)


@nox.session(python="3.11")
def lowest(session: nox.Session) -> None:
    """The tests against the lowest versions that are declared."""
    project = nox.project.load_toml("pyproject.toml")["project"]
    session.install("-e", ".[test]", *(requirement.replace(">=", "==") for requirement in project["dependencies"]))
    session.install("--no-deps", "-r", REAL_MODELS)
    session.run("pytest", "tests", "-n", "2", *session.posargs)


@nox.session
def corpus(session: nox.Session) -> None:
    """The regression corpus, from an installed wheel as users have it."""
    session.install(".")
    session.run("pytest", "--onnxq-corpus", "builtin", "-p", "no:cacheprovider", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, warnings being errors."""
    session.install("-e", ".[docs]")
    session.run("sphinx-build", "-W", "-b", "html", "docs", "docs/_build/html")
