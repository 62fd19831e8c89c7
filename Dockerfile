# The image of every container in k8s/: driver, workers, submitter. Versions: k8s/versions.env.
#
#   docker build --build-arg EXTRA=gpu --tag winnow:0.1.0-gpu .
#   docker build --build-arg EXTRA=cpu --tag winnow:0.1.0-cpu .
#
# The gpu image brings CUDA 13 inside Python packages, so nodes need the driver (580 or newer) alone.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim-bookworm

# A compiler: Triton and Inductor compile at run time. bash, python and ray on the PATH: what the
# operator's commands ask for; wget: its older versions' probes.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ libgomp1 libnuma1 wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home winnow

WORKDIR /app
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 RAY_USAGE_STATS_ENABLED=0
SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# Dependencies before the code: they are gigabytes, and change seldom.
ARG EXTRA=gpu
ARG RAY=2.60.0
ARG VLLM=0.32.0
ARG TORCH=2.13.0
ARG UV=0.13.9
COPY pyproject.toml constraints.txt ./
# constraints.txt was made with vLLM's CPU build; the CUDA build pins three of its packages itself.
RUN python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
        print(*project['dependencies'], *project['optional-dependencies']['${EXTRA}'], sep='\n')" \
        > /tmp/requirements.txt \
    && case "${EXTRA}" in \
        cpu) cp constraints.txt /tmp/constraints.txt \
            && pip install "uv==${UV}" \
            && uv pip install --system --torch-backend cpu "torch==${TORCH}" ;; \
        gpu) grep -vE '^(apache-tvm-ffi|torchaudio|triton)==' constraints.txt > /tmp/constraints.txt \
            && echo "vllm==${VLLM}" >> /tmp/constraints.txt ;; \
        *) echo "EXTRA must be cpu or gpu, not ${EXTRA}" >&2; exit 1 ;; \
    esac \
    && pip install --constraint /tmp/constraints.txt --requirement /tmp/requirements.txt \
        "ray==${RAY}" "torch==${TORCH}" \
    && case "${EXTRA}" in \
        cpu) pip uninstall --yes torchvision torchaudio torchcodec uv ;; \
        gpu) pip check ;; \
    esac \
    && rm /tmp/requirements.txt /tmp/constraints.txt

COPY README.md LICENSE ./
COPY pipeline pipeline
COPY jobs jobs
COPY conf conf
COPY examples examples
# The index of the examples is what the overlay dev-cpu retrieves from.
RUN pip install --no-deps --editable . \
    && python jobs/build_index.py conf/build_index/demo.yaml

USER 1000
ENTRYPOINT []
CMD ["/bin/bash"]
