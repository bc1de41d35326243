# syntax=docker/dockerfile:1
# The scoring service. Targets: `cpu` (default) and `cuda`.
#   docker build -t cloakwork .                      docker run -p 8123:8123 -v cloakwork:/data cloakwork
#   docker build --target cuda -t cloakwork:cuda .   docker run --gpus all -p 8123:8123 -v cloakwork:/data cloakwork:cuda
# Make the first API key with: docker run --rm -v cloakwork:/data cloakwork tenants add NAME   (docs/howto/service.md)

# The page at /, /docs and /admin: Node draws it, and zig compiles the part of the engine that runs in browsers.
FROM node:22-bookworm-slim AS page
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY constraints.txt ./
RUN python3 -m venv /opt/page \
    && /opt/page/bin/python -m pip install --constraint constraints.txt scikit-build-core ziglang
COPY fhe_core fhe_core
COPY web web
RUN /opt/page/bin/python -c "import sys; sys.path.insert(0, 'web'); import backend; backend.build_page()"

FROM python:3.12-slim-bookworm AS build-cpu
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
COPY --from=page /source/api/page api/page
ENV SKBUILD_CMAKE_DEFINE=CLOAKWORK_CUDA=OFF
ENV CLOAKWORK_PAGE=required
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/cloakwork \
    && /opt/cloakwork/bin/python -m pip install --constraint constraints.txt ".[client,service,postgresql,s3]"

FROM python:3.12-slim-bookworm AS cpu-base
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin cloakwork \
    && install --directory --owner=cloakwork --group=cloakwork --mode=0700 /data
COPY --from=build-cpu /opt/cloakwork /opt/cloakwork

FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS build-cuda
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
COPY --from=page /source/api/page api/page
ENV SKBUILD_CMAKE_DEFINE=CLOAKWORK_CUDA=ON
ENV CLOAKWORK_PAGE=required
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/cloakwork \
    && /opt/cloakwork/bin/python -m pip install --constraint constraints.txt ".[client,service,postgresql,s3]"

# `runtime` has cuBLAS, which the back end looks up when it starts.
FROM nvidia/cuda:13.0.1-runtime-ubuntu24.04 AS cuda
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin cloakwork \
    && install --directory --owner=cloakwork --group=cloakwork --mode=0700 /data
COPY --from=build-cuda /opt/cloakwork /opt/cloakwork
ENV PATH=/opt/cloakwork/bin:$PATH PYTHONUNBUFFERED=1 CLOAKWORK_DATA_FOLDER=/data CLOAKWORK_HOST=0.0.0.0 CLOAKWORK_DEVICES=cuda:0
USER 10001
VOLUME /data
EXPOSE 8123
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s \
    CMD ["/opt/cloakwork/bin/python", "-m", "cloakwork.api.health_check"]
ENTRYPOINT ["cloakwork"]
CMD ["serve"]

FROM cpu-base AS cpu
ENV PATH=/opt/cloakwork/bin:$PATH PYTHONUNBUFFERED=1 CLOAKWORK_DATA_FOLDER=/data CLOAKWORK_HOST=0.0.0.0 CLOAKWORK_DEVICES=cpu
USER 10001
VOLUME /data
EXPOSE 8123
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s \
    CMD ["/opt/cloakwork/bin/python", "-m", "cloakwork.api.health_check"]
ENTRYPOINT ["cloakwork"]
CMD ["serve"]
